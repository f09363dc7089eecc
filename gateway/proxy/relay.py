"""Station relay, for streams: bytes from the backend to the client as they come, a copy into the tap afterwards.

Per read: one scan of the framing, one write, one append; no task is switched and nothing is encoded again.  Only
whole events are passed on; the rest is held (bounded), so that an error event can be expressed at any moment.  Where
the upstream's chunk framing lies on event borders it is forwarded as it is.  The tap reads in small batches, after
the write, and can never disturb the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gateway.core.routing.retry import aborted_before_a_token
from gateway.core.stream.edit import Edit
from gateway.core.stream.envelope import error_event
from gateway.core.stream.http1 import (
    SHORT_SIZES,
    TERMINATOR,
    BadFraming,
    Body,
    ChunkedBody,
    OpenBody,
    chunk,
    ends_event,
)
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.summary import Dialect, Ending, Flag, StreamSummary
from gateway.core.stream.tap import Tap
from gateway.core.stream.whole import WholeEvents
from gateway.errors import GatewayError
from gateway.proxy.wire import ClientWire

TAP_BATCH: Final = 32


class Ends(Protocol):
    """Who is told that the upstream body is over."""

    def finish(self, ending: Ending) -> None:
        """The exchange is over."""
        ...


class StreamRelay:
    """Relays one event stream.  Owner of what is held back and of what the tap has not yet read."""

    __slots__ = (
        "_body",
        "_client_chunked",
        "_clock",
        "_dialect",
        "_edit",
        "_events",
        "_exchange",
        "_head",
        "_hold_bytes",
        "_hold_since",
        "_last",
        "_may_be_plain",
        "_needles",
        "_pending",
        "_plain",
        "_report",
        "_send",
        "_summary",
        "_tap",
        "_withheld",
        "hold_max_s",
        "last_byte_at",
        "response_bytes",
        "zero_token_abort",
    )

    def __init__(
        self,
        *,
        exchange: Ends,
        wire: ClientWire,
        head: bytes,
        body: Body,
        dialect: Dialect,
        edit: Edit,
        tap: Tap,
        report: Callable[[StreamSummary], PaceReport],
        client_chunked: bool,
        hold_bytes: int,
        stopping: bool,
        clock: Callable[[], float],
    ) -> None:
        """Take everything that is fixed when the head has come.

        ``head`` goes out with the first event; ``client_chunked`` is False for an HTTP/1.0 client; ``stopping`` says
        that we are ending the backend, whose answer may then be an abort without a token.
        """
        self._exchange = exchange
        self._head = head
        self._body = body
        self._dialect = dialect
        self._edit = edit
        self._tap = tap
        self._report = report
        self._client_chunked = client_chunked
        self._hold_bytes = hold_bytes
        self._clock = clock
        self._events = WholeEvents()
        self._withheld = b"" if stopping else None
        self._last = b""
        self._needles = edit.needles
        self._send = wire.writer()
        self._may_be_plain = client_chunked and isinstance(body, ChunkedBody)
        self._plain = False
        self._pending: list[tuple[bytes, float]] = []
        self._hold_since = 0.0
        self.hold_max_s = 0.0
        self.last_byte_at: float | None = None
        self.response_bytes = 0
        self.zero_token_abort = False
        self._summary: StreamSummary | None = None

    @property
    def unsent(self) -> bool:
        """Whether the client has not had a byte yet, so that a real status is still possible."""
        return bool(self._head)

    @property
    def persistent(self) -> bool:
        """Whether the upstream body ended cleanly enough for its connection to be used again."""
        return self._body.ended and not self._body.excess

    def feed(self, data: bytes) -> None:
        """Bytes off the upstream's wire, without its head.

        Written out for the usual read, one event in one short chunk: this runs once a token.
        """
        self.last_byte_at = now = self._clock()
        if self._plain and data.endswith(b"\n\n\r\n"):
            eol = data.find(b"\r\n", 0, 8)
            if SHORT_SIZES.get(data[:eol]) == len(data) - eol - 4:
                for needle in self._needles:
                    if needle in data:
                        break
                else:
                    self._send(data)
                    self._last = data
                    self.response_bytes += len(data)
                    pending = self._pending
                    pending.append((data, now))
                    if len(pending) == TAP_BATCH:
                        self._run_tap()
                    return
        self._take(data, now)

    def _take(self, data: bytes, now: float) -> None:
        """Any other read."""
        body = self._body
        try:
            payloads = body.feed(data)
        except BadFraming:
            self._exchange.finish(Ending.BAD_FRAMING)
            return
        if payloads:
            self._pass_on(payloads, body.raw, now)
        self._plain = self._may_be_plain and not (
            self._head or self._events.rest_bytes or self._edit.held or body.held_bytes
        )
        if body.ended:
            self._exchange.finish(Ending.COMPLETE)
        elif body.held_bytes + self._events.rest_bytes > self._hold_bytes:
            self._exchange.finish(Ending.OVERSIZE)

    def _pass_on(self, payloads: list[bytes], raw: bytes | None, now: float) -> None:
        """Write what may go; the tap sees it after the write, or before it where an edit needs its numbers."""
        self._run_tap()
        untapped = payloads
        if raw is not None and self._forwardable(raw, payloads):
            self._last = payloads[-1]
            self._write(raw)
        else:
            if self._edit.needles or self._withheld is not None:
                untapped = self._tap_all(payloads, now)
            self._reframe(payloads, now)
        self._tap_all(untapped, now)

    def _tap_all(self, payloads: list[bytes], now: float) -> list[bytes]:
        """Feed the tap; returns what is left to be fed: nothing."""
        for payload in payloads:
            self._tap.feed(payload, now)
        return []

    def _forwardable(self, raw: bytes, payloads: list[bytes]) -> bool:
        """Whether ``raw`` may go as it is: whole events chunk by chunk, nothing held, nothing to edit, same framing."""
        if not self._may_be_plain or self._head or self._events.rest_bytes or self._edit.held:
            return False
        return all(map(ends_event, payloads)) and all(needle not in raw for needle in self._needles)

    def _reframe(self, payloads: list[bytes], now: float) -> None:
        """The slow way: join, cut after the last whole event, edit where it concerns, frame anew."""
        held_since = self._hold_since if self._events.rest_bytes else now
        events = self._events.feed(b"".join(payloads))
        if self._events.rest_bytes:
            self._hold_since = now if events else held_since
        if self._withheld is not None:
            events = self._release(events)
        if not events:
            return
        if held_since < now:
            self.hold_max_s = max(self.hold_max_s, now - held_since)
        self._last = events[-_MARKER_TAIL:]
        if self._head:
            self._edit.begin(events)
            self._needles = self._edit.needles
        if self._edit.held or any(needle in events for needle in self._needles):
            events = self._edit.apply(events, self._current_report)
        if events:
            self._write(self._framed(events))

    def _release(self, events: bytes) -> bytes:
        """Hold the beginning back until it holds a token: an abort without one has accepted nothing of the request."""
        events = (self._withheld or b"") + events
        seen = self._tap.close(self._clock())
        aborted = aborted_before_a_token(seen)
        if aborted or not (seen.chunks or seen.finish_reasons or seen.error):
            self._withheld = events
            if aborted:
                self.zero_token_abort = True
                self._exchange.finish(Ending.BAD_STATUS)
            return b""
        self._withheld = None
        return events

    def _framed(self, events: bytes) -> bytes:
        return chunk(events) if self._client_chunked else events

    def _write(self, data: bytes) -> None:
        if self._head:
            data = self._head + data
            self._head = b""
        self.response_bytes += len(data)
        self._send(data)

    def _current_report(self) -> PaceReport:
        return self._report(self._tap.close(self._clock()))

    def _run_tap(self) -> None:
        pending, self._pending = self._pending, []
        feed = self._tap.feed  # never raises: a failure inside switches the tap off and is flagged
        for data, at in pending:
            feed(data[data.find(b"\r\n") + 2 : -2], at)

    def lost(self, error: Exception | None) -> None:
        """The upstream connection ended."""
        if error is not None:
            self._exchange.finish(Ending.RESET)
        elif isinstance(self._body, OpenBody):
            self._body.finish()
            self._exchange.finish(Ending.COMPLETE)
        else:
            self._exchange.finish(Ending.EOF)

    def close(self, ending: Ending, error_for: Callable[[Ending], GatewayError]) -> None:
        """Write what ends the stream for the client: its own end if the engine gave one, else an error event.

        Nothing is written while the client has had nothing (a status will tell it), nor after it has left.
        """
        summary = self.summary()
        if self._head or ending is Ending.CLIENT_GONE:
            return
        if ending is Ending.COMPLETE and self._ended_by_engine(summary):
            closing = self._framed(self._edit.held + self._events.take_rest())
        else:
            closing = self._framed(error_event(error_for(ending), self._dialect))
        self._write(closing + TERMINATOR if self._client_chunked else closing)

    def _ended_by_engine(self, summary: StreamSummary) -> bool:
        """Whether the endpoint's own end marker went by; should the tap have failed, the last event must tell."""
        if Flag.TAP_DISABLED in summary.flags and self._dialect in _DONE_DIALECTS:
            return b"data: [DONE]" in self._last
        return summary.done_marker

    def summary(self) -> StreamSummary:
        """What the tap measured; final once the stream has been closed."""
        if self._summary is None:
            self._run_tap()
            self._summary = self._tap.close(self._clock())
        return self._summary


_MARKER_TAIL: Final = 64
_DONE_DIALECTS: Final = (Dialect.CHAT, Dialect.COMPLETIONS)
