"""Comments while a stream is silent, so that nothing on the way to the client takes it for dead.

From the moment that the request is whole: a place in the queue, a connection, a backend's first byte may all take long.
Where nothing of a backend has come by then, the answer begins with a head of our own, and what goes wrong after it is
told inside the stream; the request may still go elsewhere.  A comment is no event: clients skip it and the tap never
sees it.  One lazy timer a stream, which looks whether anything was written since it last looked; nothing is armed or
counted per chunk.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.core.routing.endpoints import Endpoint
from gateway.core.routing.snapshot import CommentPolicy
from gateway.core.stream.delivery.mode import Delivery
from gateway.core.stream.envelope import error_event
from gateway.core.stream.http1 import TERMINATOR, chunk
from gateway.core.stream.summary import Dialect
from gateway.errors import GatewayError
from gateway.proxy import envelope
from gateway.proxy.answer import AnswerRelay
from gateway.proxy.choose import own_headers, side_line
from gateway.proxy.forward import Relay
from gateway.proxy.visit import BEGUN_STATUS, Visit
from gateway.proxy.wire import ClientWire

_LOOKS: Final = 4
"""Looks in the time of one comment: silence is noticed at most a quarter of it late."""

_COMMENT: Final = b": keep-alive\n\n"
_PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
_HEADERS: Final = b"Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-store\r\n"


def comment_of(dialect: Dialect) -> bytes:
    """What stands for silence: a comment; for Messages, whose clients know it, a ``ping`` event."""
    return _PING if dialect is Dialect.MESSAGES else _COMMENT


def comments_for(visit: Visit, wire: ClientWire, endpoint: Endpoint) -> Comments | None:
    """The comments of a request that is whole and whose delivery is settled; None where it has none."""
    policy = visit.snapshot.policy.comments
    wanted = None if visit.key is None else visit.key.defaults.comments
    if visit.delivery is Delivery.PASS and not (policy.untouched if wanted is None else wanted):
        return None
    streams = visit.shape is not None and visit.shape.stream and endpoint.streams
    if endpoint.dialect is None or not streams or not (policy.first_s or policy.every_s):
        return None
    return Comments(visit, wire, policy=policy, dialect=endpoint.dialect)


class Comments:
    """Owner of one stream's timer and of the head that goes out before any backend's."""

    __slots__ = (
        "_dialect",
        "_handle",
        "_loop",
        "_policy",
        "_seen_bytes",
        "_silent_s",
        "_tick_s",
        "_visit",
        "_wire",
        "begun",
    )

    def __init__(self, visit: Visit, wire: ClientWire, *, policy: CommentPolicy, dialect: Dialect) -> None:
        """``policy`` must not have both of its times off."""
        self.begun = False
        self._visit = visit
        self._wire = wire
        self._policy = policy
        self._dialect = dialect
        self._loop = asyncio.get_running_loop()
        self._tick_s = min(filter(None, (policy.first_s, policy.every_s))) / _LOOKS
        self._seen_bytes = 0
        self._silent_s = 0.0
        self._handle = self._loop.call_later(self._tick_s, self._look)

    def stop(self) -> None:
        """The stream is over."""
        self._handle.cancel()

    def tell(self, error: GatewayError) -> None:
        """End a stream that has ``begun`` and of which no event has come: by an error event and the end marker."""
        self.stop()
        self._write(error_event(error, self._dialect), last=True)

    def _look(self) -> None:
        self._silent_s += self._tick_s
        exchange = self._visit.exchange
        relay = None if exchange is None else exchange.relay
        written = self._written_bytes(relay)
        if written != self._seen_bytes or self._wire.blocked:
            self._silent_s = 0.0
        due_s = self._policy.every_s if written else self._policy.first_s
        over = exchange is not None and exchange.ending is not None  # the request's task is about to go on with it
        if due_s and self._silent_s >= due_s and not over:
            self._interject(relay)
            self._silent_s = 0.0
        self._seen_bytes = self._written_bytes(relay)
        self._handle = self._loop.call_later(self._tick_s, self._look)

    def _written_bytes(self, relay: Relay | None) -> int:
        return self._visit.response_bytes + (0 if relay is None else relay.response_bytes)

    def _interject(self, relay: Relay | None) -> None:
        text = comment_of(self._dialect)
        if isinstance(relay, AnswerRelay):
            if self.begun:  # else an error's own status is on its way
                self._write(text)
        elif relay is None:
            self._write(text)
        elif not relay.interject(text):
            self._write(text)
            relay.head = b""  # it has got ours

    def _write(self, events: bytes, *, last: bool = False) -> None:
        visit = self._visit
        data = chunk(events) if visit.http_1_1 else events
        if last and visit.http_1_1:
            data += TERMINATOR
        if not self.begun:
            data = self._head() + data
            self.begun = True
        visit.response_bytes += len(data)
        self._wire.send(data)

    def _head(self) -> bytes:
        """A head that names no backend, for none has answered."""
        visit = self._visit
        visit.status = BEGUN_STATUS
        visit.keep_alive = visit.keep_alive and visit.http_1_1
        lines = _HEADERS + own_headers(visit, None)
        lines += envelope.connection_line(keep_alive=visit.keep_alive, http_1_1=visit.http_1_1)
        if visit.side is not None:
            lines += side_line(visit.side)
        return envelope.head(BEGUN_STATUS, b"OK", headers=lines, length=None, chunked=visit.http_1_1)
