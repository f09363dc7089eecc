"""The client's connection: aiohttp's server protocol, with flow control and an early word when the client leaves.

Below every station.  The only module that touches aiohttp's private attributes; ``tests/unit/proxy/test_wire.py`` is
the canary that fails when a release changes them.  Bytes are written to the transport directly: aiohttp's own
response objects cost more per chunk than the rest of the relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, cast

from aiohttp import http_parser, web
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from gateway.core.stream.envelope import error_body
from gateway.errors import BadRequest, GatewayError, GatewayFault
from gateway.proxy.limits import TOO_MANY_CONNECTIONS, WireLimits

Handler = Callable[[web.BaseRequest, "ClientWire"], Awaitable["Answered"]]

log = logging.getLogger("gateway.wire")


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

    __slots__ = ("_head_s", "_head_timer", "_sink", "requests")

    def __init__(self, manager: web.Server, *, head_s: float, **options: Any) -> None:
        """``head_s`` bounds the time from a request head's first byte to its last."""
        super().__init__(manager, **options)
        self._sink: WireSink | None = None
        self._head_s = head_s
        self._head_timer: asyncio.TimerHandle | None = None
        self.requests = 0  # whose head came whole on this connection

    @property
    def blocked(self) -> bool:
        """Whether the client is behind by more than the buffer allows."""
        return self._paused

    @property
    def open(self) -> bool:
        """Whether bytes can still be written."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the client has not taken yet, as far as they are with us."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def attach(self, sink: WireSink) -> None:
        """Tell ``sink`` about flow control and the client's leaving until :meth:`detach`."""
        self._sink = sink
        if self._paused:
            sink.client_blocked()

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

    async def drained(self, timeout_s: float, *, whole: bool) -> bool:
        """Wait until the client has taken enough of what was written, or the ``whole`` of it.

        False when it took nothing at all for ``timeout_s``.
        """
        if whole and self.transport is not None:
            self.transport.set_write_buffer_limits(high=0)
        if not self._paused:
            return True
        while self._paused:
            before = self.unsent_bytes
            try:
                async with asyncio.timeout(timeout_s):
                    await self._drain_helper()
            except TimeoutError:
                if self.unsent_bytes >= before:
                    return False
            except ConnectionError:
                break  # it has left, which its exchange was told
        return True

    def cut(self) -> None:
        """Drop the connection at once: the only honest end of a body that cannot be completed."""
        if self.transport is not None:
            self.transport.abort()

    def force_close(self) -> None:
        """Close at once, as aiohttp does on an idle connection; what is not taken within ``head_s`` is dropped."""
        transport = self.transport
        super().force_close()
        if transport is not None and transport.get_write_buffer_size() > 0:
            self._loop.call_later(self._head_s, transport.abort)

    def hang_up_if_idle(self) -> None:
        """Close a connection on which no request has begun; one that has goes on to its end."""
        if self._waiter is not None and self._current_request is None:
            self.close()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request; a head that has begun and does not end is given up after ``head_s``."""
        super().data_received(data)
        messages, current = self._messages, self._current_request
        if messages and current is not None and isinstance(messages[-1][0], _ErrInfo):
            # A body that turns bad half-way: aiohttp queues the error behind the request that waits for that body.
            current._cancel(web.RequestPayloadError("the request body is badly framed"))  # noqa: SLF001
        begun = bool(data) and not messages and current is None and (self._waiter is None or not self._waiter.done())
        if not begun:
            if self._head_timer is not None and data:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._head_timer is None and not self._force_close:
            self._head_timer = self._loop.call_later(self._head_s, self.cut)

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
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
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
        error: GatewayError = BadRequest("the request is not valid HTTP/1.1")
        if status >= 500:
            log.error("request.defect", exc_info=exc)
            error = GatewayFault("the gateway has a defect; the request was not completed")
        answer = web.Response(
            status=status,
            body=error_body(error, None),
            content_type="application/json",
            headers={"X-Gateway-Error": "1"},
        )
        answer.force_close()
        return answer


def raw_target(request: web.BaseRequest) -> str:
    """The request target as it was sent; ``request.path`` decodes it."""
    return request._message.path  # noqa: SLF001  (see the module)


def has_fast_parser() -> bool:
    """Whether aiohttp parses requests in C; its pure-Python parser is slower and less strict."""
    return http_parser.HttpRequestParser is not http_parser.HttpRequestParserPy


class WireServer(web.Server):
    """aiohttp's low-level server over :class:`ClientWire`."""

    def __init__(self, handler: Handler, *, limits: WireLimits, buffer_bytes: Callable[[], int]) -> None:
        """``buffer_bytes`` is asked for each connection: the write buffer past which its client counts as blocked."""
        self._buffer_bytes = buffer_bytes
        self._on_request = handler
        self._limits = limits
        self.refused = 0
        self._fresh: set[RequestHandler] = set()
        self._none_fresh = asyncio.Event()
        self._none_fresh.set()
        super().__init__(
            self._entry,
            handler_cancellation=True,
            keepalive_timeout=limits.idle_s,
            access_log=None,
            auto_decompress=False,
            lingering_time=limits.linger_s,
        )

    def _entry(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        wire = cast("ClientWire", request.protocol)
        wire.requests += 1
        self._no_longer_fresh(wire)
        return cast("Awaitable[web.StreamResponse]", self._on_request(request, wire))

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Refuse what is over the limit of connections, bound the write buffer, then as aiohttp does."""
        super().connection_made(handler, transport)
        if len(self._connections) > self._limits.connections:
            self.refused += 1
            transport.write(TOO_MANY_CONNECTIONS)
            transport.close()
            return
        transport.set_write_buffer_limits(high=self._buffer_bytes())
        self._fresh.add(handler)
        self._none_fresh.clear()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the connection, as aiohttp does."""
        self._no_longer_fresh(handler)
        super().connection_lost(handler, exc)

    def _no_longer_fresh(self, handler: RequestHandler) -> None:
        self._fresh.discard(handler)
        if not self._fresh:
            self._none_fresh.set()

    async def hang_up_idle(self, *, patience_s: float) -> None:
        """Close every connection on which no request is open.

        One on which none has ever come gets ``patience_s`` for its first: its client connected before it could know,
        and the request may be on its way.  Returns when all of that is over.
        """
        self._hang_up(spare=self._fresh)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._none_fresh.wait()
        self._hang_up(spare=())

    def _hang_up(self, *, spare: Collection[RequestHandler]) -> None:
        for wire in self.connections:
            if isinstance(wire, ClientWire) and wire not in spare:
                wire.hang_up_if_idle()

    def __call__(self) -> ClientWire:
        """A protocol for a new connection."""
        return ClientWire(self, head_s=self._limits.head_s, loop=self._loop, **self._kwargs)
