"""Addresses in settings: where the gateway listens, and where a backend is.

Not a station.  Pure text: nothing is resolved or opened.  A message never repeats what was given, since a URL may hold
a password.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.core.address import UNIX, Address, address_of, parse_port, parse_socket_path, socket_path_fault

_URL_FORMS: Final = '"http://host:port", "https://host:port" or "unix:/path"'
_HOST: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)


def parse_listen(text: str) -> Address:
    """A listen address; the path of a Unix socket counts from the current directory and comes out absolute.

    Raises ValueError with what is wrong.
    """
    address = address_of(text)
    return Address(path=_absolute(address.path)) if address.path else address


def socket_path(text: str) -> str:
    """The absolute path in ``unix:/path`` or ``unix:///path``; raises ValueError."""
    return _absolute(parse_socket_path(text))


def _absolute(path: str) -> str:
    path = str(Path(path).absolute())
    if fault := socket_path_fault(path):
        raise ValueError(f"too deep: {fault}")
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
    if text.startswith(UNIX):
        return f"{UNIX}{socket_path(text)}"
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
