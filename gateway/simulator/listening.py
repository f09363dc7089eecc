"""Where a simulated server listens: a port of an address of either family, or a socket in the file system.

Shell.  Bound long before it listens, so that clients are refused while the engine loads and nobody else gets the place.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from gateway.simulator.launch import Launch
from gateway.simulator.wire import Connection

_BACKLOG: Final = 2048


class CannotListen(Exception):
    """The place is taken, or cannot be; the text names it."""


def bind(launch: Launch) -> socket.socket:
    """Bind without listening; raises CannotListen."""
    try:
        if launch.uds:
            return _bound(socket.AF_UNIX, launch.uds)
        family, _, _, _, address = socket.getaddrinfo(
            launch.host, launch.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _bound(family, address)
    except OSError as error:
        place = launch.uds or f"port {launch.port} of {launch.host}"
        raise CannotListen(f"cannot listen on {place}: {error.strerror or error}") from error


def _bound(family: int, address: object) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.settimeout(0)
        made.bind(address)  # type: ignore[arg-type]  # as getaddrinfo gives it, whatever the family
    except OSError:
        made.close()
        raise
    return made


def release(launch: Launch) -> None:
    """Remove what a socket in the file system leaves there."""
    if launch.uds:
        Path(launch.uds).unlink(missing_ok=True)


def url_of(launch: Launch, bound: socket.socket) -> str:
    """Return what the log calls the place."""
    if launch.uds:
        return f"unix:{launch.uds}"
    return f"http://{bracketed(launch.host)}:{bound.getsockname()[1]}"


def bracketed(host: str) -> str:
    """Return a host as a URL has it."""
    try:
        return f"[{host}]" if ip_address(host).version > 4 else host
    except ValueError:
        return host  # a name


async def listen(bound: socket.socket, factory: Callable[[], Connection]) -> asyncio.Server:
    """Take connections from now on."""
    loop = asyncio.get_running_loop()
    if bound.family == socket.AF_UNIX:
        return await loop.create_unix_server(factory, sock=bound, backlog=_BACKLOG)
    return await loop.create_server(factory, sock=bound, backlog=_BACKLOG)


async def listen_for_control(port: int, factory: Callable[[], Connection]) -> asyncio.Server:
    """Listen on the loopback; raises CannotListen."""
    try:
        return await asyncio.get_running_loop().create_server(factory, "127.0.0.1", port)
    except OSError as error:
        raise CannotListen(f"cannot listen on control port {port}: {error.strerror or error}") from error
