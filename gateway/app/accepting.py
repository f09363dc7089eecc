"""Which slots' connections a worker accepts: its own, and those that it keeps for a dead sibling.

Part of the worker.  The last word holds however orders come in between: a slot that is given back while its servers
are still being made is not accepted on.  Must not know the request flow.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

BACKLOG: Final = 4096
"""Connections that the kernel may queue while a worker is being replaced."""

CLOSE_NOTIFY_S: Final = 2.0
"""How long a client may take to answer the end of its TLS session, which few do."""


class Accepting:
    """Owns the servers; the listening sockets themselves are lent and stay open for whoever accepts next."""

    def __init__(
        self,
        listeners: Mapping[int, Sequence[socket.socket]],
        protocol: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_s: float = 30.0,
    ) -> None:
        """``listeners``: every slot's sockets; ``protocol`` makes the protocol of a new connection.

        ``tls``: for connections over TCP, whose handshake may take ``handshake_s``.
        """
        self._listeners = listeners
        self._protocol = protocol
        self._tls = tls
        self._handshake_s = handshake_s
        self._servers: dict[int, list[asyncio.Server]] = {}  # a slot's list stands here from the order on

    def may_begin(self, slot: int) -> bool:
        """Whether the slot has sockets and is not accepted on already, nor about to be."""
        return slot in self._listeners and slot not in self._servers

    def begin(self, slot: int) -> Coroutine[Any, Any, None]:
        """Accept on ``slot`` until :meth:`end`.  The order holds at once; the coroutine carries it out."""
        servers = self._servers[slot] = []
        return self._open(slot, servers)

    def end(self, slot: int) -> None:
        """Accept on ``slot`` no more; nothing happens when it is not accepted on."""
        for server in self._servers.pop(slot, ()):
            server.close()

    def end_all(self) -> None:
        """Accept no more at all."""
        for slot in list(self._servers):
            self.end(slot)

    async def _open(self, slot: int, servers: list[asyncio.Server]) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners[slot]:
            if self._servers.get(slot) is not servers:  # ended meanwhile, perhaps begun anew by another call
                return
            # A duplicate: closing a server closes its socket.
            tls = self._tls if listener.family != socket.AF_UNIX else None
            server = await loop.create_server(
                self._protocol,
                sock=listener.dup(),
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=self._handshake_s if tls else None,
                ssl_shutdown_timeout=CLOSE_NOTIFY_S if tls else None,
            )
            if self._servers.get(slot) is not servers:
                server.close()
                return
            servers.append(server)
