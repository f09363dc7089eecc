"""Addresses in settings: where the gateway listens, and where a backend is.

Not a station.  Pure text: nothing is resolved or opened.  A message never repeats what was given, since a URL may hold
a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

MAX_SOCKET_PATH_BYTES: Final = 107
"""Linux keeps 108 bytes for the path of a Unix socket, the last of them NUL."""

_LISTEN_FORMS: Final = '"127.0.0.1:8080", "[::1]:8080" or "unix:/path"'
_URL_FORMS: Final = '"http://host:port", "https://host:port" or "unix:/path"'
_HOST: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A place to listen: ``host`` (an IP address) and ``port``, or the absolute ``path`` of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it: a Unix socket or the loopback."""
        return bool(self.path) or ip_address(self.host).is_loopback

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Address:
    """``host:port``, ``[v6]:port`` or ``unix:/path`` (relative: from the current directory).

    Raises ValueError with what is wrong.  ``localhost`` is taken as 127.0.0.1.
    """
    if text.startswith("unix:"):
        return Address(path=socket_path(text))
    host, colon, digits = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"must name host and port: {_LISTEN_FORMS}")
    if host.startswith("[") != (":" in host):
        raise ValueError('an IPv6 address stands in brackets: "[::1]:8080"')
    host = host.removeprefix("[").removesuffix("]")
    if host == "localhost":
        host = "127.0.0.1"
    try:
        host = str(ip_address(host))
    except ValueError:
        raise ValueError(f"the host must be an IP address of this machine: {_LISTEN_FORMS}") from None
    return Address(host=host, port=parse_port(digits))


def parse_port(digits: str) -> int:
    """A port number from 1 to 65535; raises ValueError."""
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and 1 <= int(digits) <= 65535:
        return int(digits)
    raise ValueError("the port must be a number from 1 to 65535")


def socket_path(text: str) -> str:
    """The absolute path in ``unix:/path`` or ``unix:///path``; raises ValueError."""
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    if not path or path.endswith("/") or not path.isprintable() or set(path) & set("?#"):
        raise ValueError('must name a socket file: "unix:/run/engine.sock"')
    path = str(Path(path).absolute())
    if len(path.encode()) > MAX_SOCKET_PATH_BYTES:
        raise ValueError(f"the socket's path is longer than {MAX_SOCKET_PATH_BYTES} bytes, which the system allows")
    return path


def parse_host_name(text: str) -> str:
    """A host's name in lower case, or its IP address, as it stands in a ``Host`` header without the port.

    Raises ValueError.
    """
    bare = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
    try:
        return str(ip_address(bare))
    except ValueError:
        pass
    if not _HOST.fullmatch(text):
        raise ValueError('must be a host name without scheme and port: "gateway.example"')
    return text.lower().removesuffix(".")


def parse_url(text: str) -> str:
    """A backend's URL as ``http://host:port``, ``https://host:port`` or ``unix:/path``; raises ValueError."""
    if text.startswith("unix:"):
        return f"unix:{socket_path(text)}"
    if any(sign.isspace() or not sign.isprintable() for sign in text):
        raise ValueError("a url holds no blanks")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError(f"not a url: {_URL_FORMS}") from None
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"must be {_URL_FORMS}")
    if "@" in parts.netloc:
        raise ValueError("no user or password in a url; the backend's own key comes from api_key_env")
    if parts.path not in {"", "/"} or parts.query or parts.fragment or "?" in text or "#" in text:
        raise ValueError("only scheme, host and port; the gateway adds the path (/v1/...) itself")
    return f"{parts.scheme}://{_authority(parts.netloc, secure=parts.scheme == 'https')}"


def _authority(netloc: str, *, secure: bool) -> str:
    """``host:port`` with the port that the scheme implies; raises ValueError."""
    host, colon, digits = netloc.rpartition(":")
    if not colon or netloc.endswith("]"):
        host, digits = netloc, "443" if secure else "80"
    port = parse_port(digits)
    if host.startswith("[") and host.endswith("]"):
        try:
            address = ip_address(host[1:-1])
        except ValueError:
            raise ValueError("not an IPv6 address between the brackets") from None
        return f"[{address}]:{port}"
    if not _HOST.fullmatch(host):
        raise ValueError("the host must be a name or an IP address (IPv6 in brackets)")
    return f"{host.lower()}:{port}"
