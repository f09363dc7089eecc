"""Serves the admin application on sockets that the supervisor made.

Owns the accepting servers and the connections: at most so many at once, each of which has to send a whole request
head in time.  Stops accepting first, then ends what is open.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.admin.limits import AdminLimits


class AdminListener:
    """Accepts on ``sockets`` (bound, listening, TCP or Unix) from :meth:`start` to :meth:`close`."""

    def __init__(
        self, app: web.Application, sockets: Sequence[socket.socket], *, limits: AdminLimits | None = None
    ) -> None:
        """Take ``app`` over; it must not have been started."""
        self._limits = limits or AdminLimits()
        self._sockets = tuple(sockets)
        self._servers: list[asyncio.Server] = []
        self._silent: dict[asyncio.Protocol, asyncio.TimerHandle] = {}
        app.middlewares.insert(0, self._hear)
        # No access log: changes stand in the audit trail, and a scrape every few seconds is no news.
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            keepalive_timeout=self._limits.idle_s,
            shutdown_timeout=self._limits.stop_s,
        )

    async def start(self) -> None:
        """Begin to accept.  Raises RuntimeError for a route without a scope."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            if sock.family == socket.AF_UNIX:
                self._servers.append(await loop.create_unix_server(self._protocol, sock=sock))
            else:
                self._servers.append(await loop.create_server(self._protocol, sock=sock))

    async def close(self) -> None:
        """Stop accepting, end event streams, give other requests a moment, close."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        await self._runner.cleanup()
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()

    def _protocol(self) -> asyncio.Protocol:
        """What speaks on a new connection."""
        server = self._runner.server
        if server is None or len(server.connections) >= self._limits.connections:
            return _TurnedAway()
        handler = server()
        loop = asyncio.get_running_loop()
        # The library bounds the time between requests, but not that until the first head.
        self._silent[handler] = loop.call_later(self._limits.head_s, self._hang_up, handler)
        return handler

    def _hang_up(self, handler: web.RequestHandler) -> None:
        self._silent.pop(handler, None)
        handler.force_close()

    @web.middleware
    async def _hear(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The connection has sent a head: it is no silent one."""
        timer = self._silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()
        return await handler(request)


class _TurnedAway(asyncio.Protocol):
    """Closes a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
