"""The client's connection: aiohttp's server protocol, with flow control and an early word when the client leaves.

Below every station.  The only module that touches aiohttp's private attributes; ``tests/unit/proxy/test_wire.py`` is
the canary that fails when a release changes them.  Bytes are written to the transport directly: aiohttp's own
response objects cost more per chunk than the rest of the relay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gateway.core.stream.envelope import error_body
from gateway.errors import BadRequest

Handler = Callable[[web.BaseRequest, "ClientWire"], Awaitable["Answered"]]


class WireSink(Protocol):
    """Who wants to know what the client's connection does, for the length of one exchange."""

    def client_blocked(self) -> None:
        """The client does not take bytes as fast as they come."""
        ...

    def client_ready(self) -> None:
        """The client takes bytes again."""
        ...

    def client_gone(self) -> None:
        """The connection is lost; nothing can be written any more."""
        ...


class Answered:
    """Stands for a response that has been written already; tells aiohttp whether the connection goes on."""

    __slots__ = ("keep_alive",)

    status = 200
    body_length = 0

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing left to do."""

    async def write_eof(self) -> None:
        """Nothing left to do."""


class ClientWire(RequestHandler):
    """One client connection.  Owner of the write side while an exchange is attached."""

    __slots__ = ("_sink",)

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self._sink: WireSink | None = None

    @property
    def blocked(self) -> bool:
        """Whether the client is behind by more than the buffer allows."""
        return self._paused

    @property
    def open(self) -> bool:
        """Whether bytes can still be written."""
        return self.transport is not None and not self.transport.is_closing()

    def attach(self, sink: WireSink) -> None:
        """Tell ``sink`` about flow control and the client's leaving until :meth:`detach`."""
        self._sink = sink

    def detach(self) -> None:
        """Nobody is told any more."""
        self._sink = None

    def send(self, data: bytes) -> None:
        """Write ``data``; silently nothing once the client has left (it is told to the sink)."""
        if self.transport is not None:
            self.transport.write(data)

    def writer(self) -> Callable[[bytes], None]:
        """The transport's own ``write``, for one exchange that ends when the client leaves: no frame in between."""
        return self.send if self.transport is None else self.transport.write

    def cut(self) -> None:
        """Drop the connection at once: the only honest end of a body that cannot be completed."""
        if self.transport is not None:
            self.transport.abort()

    def hang_up_if_idle(self) -> None:
        """Close a connection on which no request has begun; one that has goes on to its end."""
        if self._waiter is not None and self._current_request is None:
            self.close()

    def pause_writing(self) -> None:
        """Flow control of the transport."""
        super().pause_writing()
        if self._sink is not None:
            self._sink.client_blocked()

    def resume_writing(self) -> None:
        """Flow control of the transport."""
        super().resume_writing()
        if self._sink is not None:
            self._sink.client_ready()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client left, or we cut it off; aiohttp cancels the handler after this."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.client_gone()
        super().connection_lost(exc)

    def handle_error(  # noqa: PLR0917  (aiohttp's signature)
        self,
        request: web.BaseRequest,  # noqa: ARG002  (aiohttp's signature)
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  (aiohttp's signature; may quote the client's bytes)
    ) -> web.StreamResponse:
        """A request head that is no HTTP, or a defect that reached aiohttp: one JSON envelope, then the end."""
        if status >= 500:
            logging.getLogger(__name__).error("request handler failed", exc_info=exc)
        error = BadRequest("the request is not valid HTTP/1.1")
        answer = web.Response(
            status=status,
            body=error_body(error, None),
            content_type="application/json",
            headers={"X-Gateway-Error": "1"},
        )
        answer.force_close()
        return answer


class WireServer(web.Server):
    """aiohttp's low-level server over :class:`ClientWire`."""

    def __init__(self, handler: Handler, *, buffer_bytes: int, idle_s: float) -> None:
        """Take the limits of a connection.

        ``buffer_bytes`` is the write buffer past which the client counts as blocked; ``idle_s`` bounds both an
        idle connection and the time for a request head.  The body's limits are the admit station's.
        """
        self._buffer_bytes = buffer_bytes
        self._on_request = handler
        super().__init__(
            self._entry,
            handler_cancellation=True,
            keepalive_timeout=idle_s,
            access_log=None,
            auto_decompress=False,
            lingering_time=2.0,
        )

    def _entry(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        wire = cast("ClientWire", request.protocol)
        return cast("Awaitable[web.StreamResponse]", self._on_request(request, wire))

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Bound the write buffer, then as aiohttp does."""
        transport.set_write_buffer_limits(high=self._buffer_bytes)
        super().connection_made(handler, transport)

    def hang_up_idle(self) -> None:
        """Close every connection on which no request has begun."""
        for wire in self.connections:
            if isinstance(wire, ClientWire):
                wire.hang_up_if_idle()

    def __call__(self) -> ClientWire:
        """A protocol for a new connection."""
        return ClientWire(self, loop=self._loop, **self._kwargs)
