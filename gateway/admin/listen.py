"""Serves the admin application on sockets that the supervisor made.

Owns the accepting servers and the connections.  Stops accepting first, then ends what is open.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from aiohttp import web

from gateway.admin.limits import AdminLimits


class AdminListener:
    """Accepts on ``sockets`` (bound, listening, TCP or Unix) from :meth:`start` to :meth:`close`."""

    def __init__(
        self,
        app: web.Application,
        sockets: Sequence[socket.socket],
        *,
        limits: AdminLimits | None = None,
    ) -> None:
        bounds = limits or AdminLimits()
        self._sockets = tuple(sockets)
        self._servers: list[asyncio.Server] = []
        # No access log: changes stand in the audit trail, and a scrape every few seconds is no news.
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            keepalive_timeout=bounds.idle_s,
            shutdown_timeout=bounds.stop_s,
        )

    async def start(self) -> None:
        """Begin to accept.  Raises RuntimeError for a route without a scope."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        protocols = self._runner.server
        if protocols is None:
            raise RuntimeError("the runner has no server after its set-up")
        for sock in self._sockets:
            if sock.family == socket.AF_UNIX:
                self._servers.append(await loop.create_unix_server(protocols, sock=sock))
            else:
                self._servers.append(await loop.create_server(protocols, sock=sock))

    async def close(self) -> None:
        """Stop accepting, end event streams, give other requests a moment, close."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        await self._runner.cleanup()
