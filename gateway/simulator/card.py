"""The memory of the simulated GPUs, shared by all simulated engines that name the same folder.

Shell.  Real processes hold it (``core_process.py``), so that an orphan holds it too and its death frees it, whoever
watches.  A file whose process is gone is removed by the next reader.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from gateway.simulator.gpu import GpuHost
from gateway.simulator.presets import Box


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds: ``bytes_each`` on each of the first ``gpus``."""

    pid: int
    gpus: int
    bytes_each: int


def holders(card: Path) -> list[Held]:
    """Return the living processes that hold memory."""
    found = []
    for path in sorted(card.glob("[0-9]*")) if card.is_dir() else []:
        if not path.name.isdigit():
            continue
        if not _is_core(int(path.name)):
            path.unlink(missing_ok=True)
            continue
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # it ended meanwhile
        found.append(Held(pid=told["pid"], gpus=told["gpus"], bytes_each=told["bytes"]))
    return found


def _is_core(pid: int) -> bool:
    """Whether that process lives and is a simulated EngineCore, and not a later process with its number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z" and b"core_process" in words


class Card:
    """The simulated GPUs of one box as this process sees them; owner of its view, not of what others hold."""

    def __init__(self, folder: Path, box: Box) -> None:
        self.folder = folder
        self._host = GpuHost(box)
        self._known: set[int] = set()

    def host(self) -> GpuHost:
        """Return the GPUs with what living processes hold on them now."""
        held = {holder.pid: holder for holder in holders(self.folder)}
        for pid in self._known - held.keys():
            self._host.release(pid)
        for holder in held.values():
            gpus = tuple(range(holder.gpus))
            self._host.hold(holder.pid, "VLLM::EngineCore", bytes_each=holder.bytes_each, gpus=gpus)
        self._known = set(held)
        return self._host
