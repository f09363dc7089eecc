"""Where the gateway listens: listen addresses as text and as values, and what a Unix socket's path may be.

Not a station.  The one owner of both: the settings check with it, the supervisor opens what it reads.  Pure: nothing
is resolved or opened, a relative path stays one.  A message never repeats what was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

MAX_SOCKET_PATH_BYTES: Final = 107
"""Linux keeps 108 bytes for the path of a Unix socket (``sun_path`` of unix(7)), the last of them NUL."""

LINK_NAME: Final = "link.sock"
"""The deepest socket in the runtime directory: control's end of the link."""

UNIX: Final = "unix:"

_FORMS: Final = '"127.0.0.1:8080", "[::1]:8080" or "unix:/path"'


@dataclass(frozen=True, slots=True)
class Address:
    """A place to listen: ``host`` (an IP address) and ``port``, or the ``path`` of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it: a Unix socket or the loopback."""
        return bool(self.path) or ip_address(self.host).is_loopback

    def __str__(self) -> str:
        if self.path:
            return f"{UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str, *, lowest_port: int = 1) -> Address:
    """``host:port``, ``[v6]:port`` or ``unix:/path``; ``lowest_port=0`` allows the system to choose a port.

    Raises ValueError with what is wrong.  ``localhost`` is taken as 127.0.0.1.
    """
    if text.startswith(UNIX):
        return Address(path=parse_socket_path(text))
    host, colon, digits = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"must name host and port: {_FORMS}")
    if host.startswith("[") != (":" in host):
        raise ValueError('an IPv6 address stands in brackets: "[::1]:8080"')
    host = host.removeprefix("[").removesuffix("]")
    if host == "localhost":
        host = "127.0.0.1"
    try:
        host = str(ip_address(host))
    except ValueError:
        raise ValueError(f"the host must be an IP address of this machine: {_FORMS}") from None
    return Address(host=host, port=parse_port(digits, lowest=lowest_port))


def parse_port(digits: str, *, lowest: int = 1) -> int:
    """A port number from ``lowest`` to 65535; raises ValueError."""
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and lowest <= int(digits) <= 65535:
        return int(digits)
    raise ValueError(f"the port must be a number from {lowest} to 65535")


def parse_socket_path(text: str) -> str:
    """The path in ``unix:/path`` or ``unix:///path``, as it was given; raises ValueError."""
    path = text.removeprefix(UNIX)
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    if not path or path.endswith("/") or not path.isprintable() or set(path) & set("?#"):
        raise ValueError('must name a socket file: "unix:/run/engine.sock"')
    return path


def link_path(runtime_dir: str) -> str:
    """Where the link's socket is in a runtime directory."""
    return f"{runtime_dir}/{LINK_NAME}"


def socket_path_fault(path: str) -> str:
    """Why no socket can have this absolute path: a phrase, "" when one can."""
    length_bytes = len(path.encode("utf-8", "surrogateescape"))
    if length_bytes <= MAX_SOCKET_PATH_BYTES:
        return ""
    return f"a socket's path of {length_bytes} bytes, {MAX_SOCKET_PATH_BYTES} at most are possible"
