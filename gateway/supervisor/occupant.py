"""Who already listens on an address, as far as this user may see; only to say so in an error.

Not a station.  Reads ``/proc`` and asks a Unix socket for its peer; finds nothing rather than fail.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Final

_LISTEN: Final = "0A"
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def of_port(port: int) -> str:
    """The process that listens on TCP ``port``: "pid 17 (nginx)", or "" when that cannot be seen."""
    wanted = {f"socket:[{inode}]" for table in _TABLES for inode in _listening(Path(table), port)}
    if not wanted:
        return ""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and _holds(process, wanted):
            return _named(int(process.name))
    return ""


def of_socket(connected: socket.socket) -> str:
    """The process behind the Unix socket that ``connected`` reached, or ""."""
    pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return _named(pid) if pid > 0 else ""


def _listening(table: Path, port: int) -> list[str]:
    """Inodes of the sockets of one table that listen on ``port``."""
    try:
        rows = table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return []
    inodes = []
    for columns in map(str.split, rows):
        _, _, port_hex = columns[1].rpartition(":")
        if columns[3] == _LISTEN and int(port_hex, 16) == port:
            inodes.append(columns[9])
    return inodes


def _holds(process: Path, wanted: set[str]) -> bool:
    try:
        return any(str(descriptor.readlink()) in wanted for descriptor in (process / "fd").iterdir())
    except OSError:  # it ended meanwhile, or belongs to somebody else
        return False


def _named(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"pid {pid}"
    return f"pid {pid} ({name})" if name.isprintable() else f"pid {pid}"
