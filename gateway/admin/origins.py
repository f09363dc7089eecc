"""Is a request meant for this listener?  Against pages that make a browser send requests here.

A page of another site shows in `Origin` (forged requests); a name that was rebound to our address shows in `Host`
(DNS rebinding).  Ports are not compared in `Host`, since tunnels and containers map them; addresses need no DNS and
so cannot be rebound.  Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

_LOCAL = frozenset({"localhost"})


class Origins:
    """The names and addresses under which the operators' listeners are reached."""

    def __init__(self, listen: Iterable[str], names: Iterable[str] = ()) -> None:
        """Take listen addresses as configured (``host:port``, ``[v6]:port``, ``unix:/path``) and further host names."""
        hosts = {_host_of(address) for address in listen if not address.startswith("unix:")}
        self._any_address = any(_is_wildcard(host) for host in hosts)
        self._hosts = _LOCAL | hosts | {name.lower().rstrip(".") for name in names}

    def refusal(self, host: str | None, origin: str | None) -> str:
        """Why a request with these headers is refused: one sentence, or "" when it is welcome."""
        if not host or not self._is_ours(_host_of(host)):
            return "the Host header names no address of this listener, and no name in operators.names"
        if origin is not None and not _same_place(origin, host):
            return "the Origin header names another site"
        return ""

    def _is_ours(self, host: str) -> bool:
        if host in self._hosts:
            return True
        address = _address(host)
        return address is not None and (self._any_address or address.is_loopback)


def _same_place(origin: str, host: str) -> bool:
    scheme, separator, place = origin.lower().partition("://")
    return bool(separator) and scheme in {"http", "https"} and place == host.lower()


def _host_of(address: str) -> str:
    if address.startswith("["):
        host = address[1:].partition("]")[0]
    elif address.count(":") > 1:
        host = address  # an IPv6 address without brackets holds no port
    else:
        host = address.partition(":")[0]
    return host.lower().rstrip(".")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_wildcard(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_unspecified
