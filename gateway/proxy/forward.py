"""Station forward: one attempt at one backend, from the request's bytes to the end of the answer.

An :class:`Exchange` is the meeting point of three parties: the connection to the backend, the relay that its head
chose, and the client's connection.  Everything happens in callbacks; the request's task only waits for the end.  It
ends exactly once (:meth:`Exchange.finish`), whoever is first: the body, the backend, the client, a timer, shutdown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from gateway.core.routing.snapshot import TimerPolicy
from gateway.core.stream.http1 import BadFraming, ResponseHead, parse_head
from gateway.core.stream.silence import PulseTrack
from gateway.core.stream.summary import Ending
from gateway.errors import (
    BackendDied,
    BackendGarbled,
    BackendRefused,
    BackendSilent,
    BackendStalled,
    GatewayError,
    ShuttingDown,
)
from gateway.proxy.answer import AnswerRelay
from gateway.proxy.relay import StreamRelay
from gateway.proxy.upstream import Connection, Upstreams
from gateway.proxy.watch import SilenceWatch
from gateway.proxy.wire import ClientWire

LEFT: Final = frozenset({Ending.CLIENT_GONE, Ending.CLIENT_STALLED})
"""Endings after which nobody reads any more."""

Relay = StreamRelay | AnswerRelay
ChooseRelay = Callable[["Exchange", ResponseHead], Relay | Ending]


class Exchange:
    """One request at one backend.  Owner of the connection while it lasts, and of the exchange's end."""

    __slots__ = (
        "_block_since",
        "_choose",
        "_clock",
        "_connection",
        "_head_bytes",
        "_watch",
        "_wire",
        "blocked",
        "blocked_s",
        "done",
        "ending",
        "head",
        "headers_at",
        "relay",
        "sent_at",
        "write_timeout_s",
        "write_timer",
    )

    def __init__(
        self,
        connection: Connection,
        wire: ClientWire,
        *,
        choose: ChooseRelay,
        timers: TimerPolicy,
        pulses: PulseTrack,
        clock: Callable[[], float],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._connection = connection
        self._wire = wire
        self._choose = choose
        self._clock = clock
        self._head_bytes = b""
        self._block_since = 0.0
        self.blocked = False
        self.blocked_s = 0.0
        self.write_timeout_s = timers.client_write_s
        self.write_timer: asyncio.TimerHandle | None = None
        self.done: asyncio.Future[Ending] = loop.create_future()
        self.ending: Ending | None = None
        self.head: ResponseHead | None = None
        self.headers_at: float | None = None
        self.relay: Relay | None = None
        self.sent_at: float | None = None
        self._watch = SilenceWatch(
            loop=loop, clock=clock, timers=timers, pulses=pulses, watched=self, on_end=self.finish
        )

    @property
    def last_byte_at(self) -> float | None:
        """When the answer's last body byte came (for the watch)."""
        return None if self.relay is None else self.relay.last_byte_at

    def start(self, request: bytes) -> None:
        """Write the request and listen."""
        self._wire.attach(self)
        self._connection.begin(self)
        if self._connection.write(request):
            self.sent_at = self._clock()
        self._watch.start()

    # --- the backend's side ---

    def flushed(self) -> None:
        """A long request has been written whole."""
        if self.sent_at is None:
            self.sent_at = self._clock()

    def received(self, data: bytes) -> None:
        """Bytes before the head is complete; after it they go to the relay directly."""
        if self._head_bytes:
            data = self._head_bytes + data
        try:
            parsed = parse_head(data)
        except BadFraming:
            self.finish(Ending.BAD_FRAMING)
            return
        if parsed is None:
            self._head_bytes = data
            return
        self.head, offset = parsed
        self.headers_at = self._clock()
        if self.sent_at is None:
            self.sent_at = self.headers_at
        relay = self._choose(self, self.head)
        if isinstance(relay, Ending):
            self.finish(relay)
            return
        self.relay = relay
        self._connection.hand_to(relay.feed)
        if offset < len(data) or relay.persistent:
            relay.feed(data[offset:])

    def lost(self, error: Exception | None) -> None:
        """The backend's connection ended."""
        if self.relay is not None:
            self.relay.lost(error)
        else:
            self.finish(Ending.EOF if error is None else Ending.RESET)

    # --- the client's side ---

    def client_blocked(self) -> None:
        """The client is behind: read no more, but not for ever."""
        self.blocked = True
        self._block_since = self._clock()
        self._connection.pause()
        self._wait_for_client()

    def client_ready(self) -> None:
        """The client caught up; the silence meanwhile was ours, so it starts anew."""
        now = self._clock()
        self.blocked = False
        self.blocked_s += now - self._block_since
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        if self.relay is not None and self.relay.last_byte_at is not None:
            self.relay.last_byte_at = now
        self._connection.resume()

    def take_turns(self) -> None:
        """A read was as large as reads get: let the other streams have a turn before the next one of this backend."""
        if not self.blocked and self.ending is None:
            self._connection.pause()
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if not self.blocked and self.ending is None:
            self._connection.resume()

    def client_gone(self) -> None:
        """The client left: the backend is told at once, by closing its connection."""
        self.finish(Ending.CLIENT_GONE)

    def _wait_for_client(self) -> None:
        unsent_bytes = self._wire.unsent_bytes
        loop = asyncio.get_running_loop()
        self.write_timer = loop.call_later(self.write_timeout_s, self._give_client_up, unsent_bytes)

    def _give_client_up(self, unsent_bytes: int) -> None:
        if self._wire.unsent_bytes < unsent_bytes:
            self._wait_for_client()  # slow, but it reads
            return
        self.finish(Ending.CLIENT_STALLED)
        self._wire.cut()

    # --- the end ---

    def finish(self, ending: Ending) -> None:
        """End the exchange; only the first call counts.  Writes the closing bytes and lets the connection go."""
        if self.ending is not None:
            return
        self.ending = ending
        self._watch.stop()
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        if self.blocked:
            self.blocked_s += self._clock() - self._block_since
        try:
            if self.relay is not None:
                self.relay.close(ending, error_for)
        finally:
            self._wire.detach()
            if ending in LEFT:
                self._connection.abort()
            else:
                self._connection.end()
            if not self.done.done():
                self.done.set_result(ending)

    def forget(self) -> None:
        """Let go of the parts that refer to this exchange, once it is over and nobody asks it any more.

        Else each request would be garbage in a cycle, and its body would wait for the collector.
        """
        if self.ending is not None:
            self.relay = None
            del self._watch, self._choose

    def let_go(self, upstreams: Upstreams) -> None:
        """Give the connection back when it can carry another request, else close it at once."""
        connection = self._connection
        again = (
            self.ending is Ending.COMPLETE
            and self.relay is not None
            and self.relay.persistent
            and self.head is not None
            and self.head.persistent
        )
        if connection.paused:
            connection.resume()
        if again:
            upstreams.keep(connection)
        else:
            connection.abort()


def error_for(ending: Ending) -> GatewayError:
    """What a client is told of an exchange that ended this way."""
    kind, message = _TOLD.get(ending, (BackendDied, "the request ended before it was answered"))
    return kind(message, retry_after_s=SHUTDOWN_RETRY_AFTER_S if ending is Ending.SHUTDOWN else None)


SHUTDOWN_RETRY_AFTER_S: Final = 5.0
"""About how long a restart of the gateway takes."""

_TOLD: Final[Mapping[Ending, tuple[type[GatewayError], str]]] = MappingProxyType(
    {
        Ending.FIRST_EVENT_TIMEOUT: (
            BackendSilent,
            "the backend sent nothing in the time allowed for a first event",
        ),
        Ending.STALL_TIMEOUT: (BackendStalled, "the backend stopped sending in the middle of its answer"),
        Ending.TOTAL_TIMEOUT: (
            BackendStalled,
            "the answer took longer than the time allowed for a whole request",
        ),
        Ending.BAD_FRAMING: (BackendGarbled, "the backend sent something that is not HTTP"),
        Ending.NOT_SSE: (BackendGarbled, "the backend's answer is of another kind than was asked for"),
        Ending.OVERSIZE: (BackendGarbled, "the backend sent a single event that is larger than the gateway holds"),
        Ending.EOF: (BackendDied, "the backend closed the connection before its answer was complete"),
        Ending.RESET: (BackendDied, "the backend's connection broke before its answer was complete"),
        Ending.COMPLETE: (BackendDied, "the backend ended its answer without the end marker"),
        Ending.KEY_REFUSED: (
            BackendGarbled,
            "the backend refused the gateway's own key; its operator has to look at api_key_env",
        ),
        Ending.BAD_STATUS: (BackendRefused, "the backend is being stopped and did not take the request"),
        Ending.SHUTDOWN: (ShuttingDown, "the gateway is shutting down"),
    }
)
