"""Station relay, for streams: bytes from the backend to the client as they come, a copy into the tap afterwards.

Per read: one scan of the framing, one write, one append; no task is switched and nothing is encoded again.  Only
whole events are passed on; the rest is held (bounded), so that an error event can be expressed at any moment.  Where
the upstream's chunk framing lies on event borders it is forwarded as it is.  The tap reads in small batches, after
the write, and can never disturb the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.core.stream.dialects import BEGINNINGS, DONE_DIALECTS
from gateway.core.stream.edit import Edit
from gateway.core.stream.envelope import error_event
from gateway.core.stream.http1 import (
    SHORT_MAX_BYTES,
    TERMINATOR,
    BadFraming,
    Body,
    ChunkedBody,
    OpenBody,
    chunk,
    ends_event,
)
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.sse import has_field
from gateway.core.stream.summary import Dialect, Ending, Flag, StreamSummary
from gateway.core.stream.tap import Tap
from gateway.core.stream.whole import WholeEvents
from gateway.errors import GatewayError
from gateway.proxy.beginning import Beginning
from gateway.proxy.relay_owner import RelayOwner
from gateway.proxy.tapping import TAP_BATCH, TapQueue
from gateway.proxy.wire import ClientWire

LARGE_READ_BYTES: Final = 64 * 1024
"""A read of this size comes from a backend that is faster than the loop; uvloop would go on with it for 8 MiB."""


class StreamRelay:
    """Relays one event stream.  Owner of what is held back and of what the tap has not yet read."""

    __slots__ = (
        "_beginning",
        "_beginnings",
        "_body",
        "_client_chunked",
        "_clock",
        "_dialect",
        "_edit",
        "_events",
        "_exchange",
        "_fresh",
        "_hold_bytes",
        "_hold_since",
        "_last",
        "_may_be_plain",
        "_needles",
        "_pending",
        "_plain",
        "_report",
        "_send",
        "_stencil",
        "_tap",
        "_unsent",
        "head",
        "hold_max_s",
        "last_byte_at",
        "response_bytes",
        "told",
        "zero_token_abort",
    )

    def __init__(
        self,
        *,
        exchange: RelayOwner,
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

        ``head`` goes out with the first event (b"": the client has one); ``client_chunked`` is False for an HTTP/1.0
        client; ``stopping``: we are ending the backend, whose answer may then be an abort without a token.
        """
        self._exchange = exchange
        self.head = head
        self._unsent = True  # nothing of this answer has gone out yet
        self._fresh = True  # no event has gone out yet
        self._body = body
        self._dialect = dialect
        self._edit = edit
        self._tap = TapQueue(tap, clock)
        self._report = report
        self._client_chunked = client_chunked
        self._hold_bytes = hold_bytes
        self._clock = clock
        self._events = WholeEvents()
        self._beginning = Beginning(stopping=stopping)
        self._last = b""
        self._needles = edit.needles
        self._send = wire.writer()
        self._beginnings = BEGINNINGS[dialect]
        self._may_be_plain = client_chunked and isinstance(body, ChunkedBody)
        self._plain = False
        self._pending = self._tap.pending
        self._stencil = tap.stencil
        self._hold_since: float | None = None
        self.hold_max_s = 0.0
        self.last_byte_at: float | None = None
        self.response_bytes = 0
        self.told: GatewayError | None = None
        self.zero_token_abort = False

    @property
    def unsent(self) -> bool:
        """Whether the client has had nothing of this answer yet, so that another one is still possible."""
        return self._unsent

    @property
    def persistent(self) -> bool:
        """Whether the upstream body ended cleanly enough for its connection to be used again."""
        return self._body.ended and not self._body.excess

    def feed(self, data: bytes) -> None:
        """Bytes off the upstream's wire, without its head.

        Written out for the usual read, one event in one short chunk: this runs once a token.  Where the stencil knows
        it, it holds nothing to edit, and the tap needs no more of it than its length.
        """
        now = self._clock()
        size = len(data)
        if self._plain and size <= SHORT_MAX_BYTES and data.startswith(self._beginnings[size]):
            seen: bytes | int = 0
            if self._stencil.passable:
                seen = self._stencil.fits(data, len(self._beginnings[size]) - _DATA_BYTES)
            if not seen and data[-4:] == b"\n\n\r\n":
                for needle in self._needles:
                    if needle in data:
                        break
                else:
                    seen = data
            if seen:
                self._send(data)
                self.last_byte_at = now
                self._last = data
                self.response_bytes += size
                pending = self._pending
                pending.append((seen, now))
                if len(pending) == TAP_BATCH:
                    self._tap.run()
                    if not self._stencil.passable:
                        self._stencil.clear(self._needles)
                return
        self._take(data, now)

    def _take(self, data: bytes, now: float) -> None:
        """Any other read."""
        if len(data) >= LARGE_READ_BYTES:
            self._exchange.take_turns()
        body = self._body
        try:
            payloads = body.feed(data)
        except BadFraming:
            self._exchange.finish(Ending.BAD_FRAMING)
            return
        if payloads:
            self._pass_on(payloads, body.raw, now)
        if not payloads or any(map(has_field, payloads)):
            self.last_byte_at = now  # a comment is no sign of the engine's life, only of its front end's
        held = bool(self._events.rest_bytes or self._edit.held or body.held_bytes)
        self._note_hold(now, held=held)
        self._plain = self._may_be_plain and not (held or self._unsent or self._fresh)
        if body.ended:
            self._exchange.finish(Ending.COMPLETE)
        elif body.held_bytes + self._events.rest_bytes + self._beginning.held_bytes > self._hold_bytes:
            self._exchange.finish(Ending.OVERSIZE)

    def _pass_on(self, payloads: list[bytes], raw: bytes | None, now: float) -> None:
        """Write what may go; the tap sees it after the write, or before it where its numbers are needed for it."""
        if raw is not None and self._forwardable(raw, payloads):
            self._last = payloads[-1]
            self._write(raw)
            self._tap.read(payloads, now)
        elif self._edit.needles or self._unsent or self._fresh:
            self._tap.read(payloads, now)
            self._reframe(payloads)
        else:
            self._reframe(payloads)
            self._tap.read(payloads, now)

    def _note_hold(self, now: float, *, held: bool) -> None:
        """Keep the longest time that bytes waited for an event to become whole."""
        if self._hold_since is not None:
            self.hold_max_s = max(self.hold_max_s, now - self._hold_since)
        self._hold_since = now if held else None

    def _forwardable(self, raw: bytes, payloads: list[bytes]) -> bool:
        """Whether ``raw`` may go as it is: whole events chunk by chunk, nothing held, nothing to edit, same framing."""
        if not self._may_be_plain or self._unsent or self._fresh or self._events.rest_bytes or self._edit.held:
            return False
        return all(map(ends_event, payloads)) and all(needle not in raw for needle in self._needles)

    def _reframe(self, payloads: list[bytes]) -> None:
        """The slow way: join, cut after the last whole event, edit where it concerns, frame anew."""
        events = self._events.feed(b"".join(payloads))
        if self._unsent:
            events = self._beginning.take(events, self._tap.so_far)
            if self._beginning.aborted:
                self.zero_token_abort = True
                self._exchange.finish(Ending.BAD_STATUS)
        if not events:
            return
        self._last = events[-_MARKER_TAIL:]
        if self._fresh:
            self._fresh = False
            self._edit.begin(events)
            self._needles = self._edit.needles
        if self._edit.held or any(needle in events for needle in self._needles):
            events = self._edit.apply(events, self._current_report)
        if events:
            self._write(self._framed(events))

    def _framed(self, events: bytes) -> bytes:
        return chunk(events) if self._client_chunked else events

    def _write(self, data: bytes) -> None:
        if self._unsent:
            data = self.head + data
            self._unsent = False
        self.response_bytes += len(data)
        self._send(data)

    def interject(self, text: bytes) -> bool:
        """Write ``text``, a comment or an event of our own, between two events; with the head if need be.

        False: not before the first event of a backend that we are stopping, for its request may yet go elsewhere.
        """
        if self._unsent and not self._beginning.may_open:
            return False
        self._write(self._framed(self._beginning.release() + text))
        return True

    def _current_report(self) -> PaceReport:
        return self._report(self._tap.so_far())

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
        if self._unsent or ending in {Ending.CLIENT_GONE, Ending.CLIENT_STALLED}:
            return
        if self._ended_by_engine(summary):  # then nothing is missing, whatever became of the connection
            closing = self._edit.held + (self._events.take_rest() if ending is Ending.COMPLETE else b"")
        else:
            self.told = error_for(ending)
            closing = self._edit.at_break() + error_event(self.told, self._dialect)
        closing = self._framed(closing)
        self._write(closing + TERMINATOR if self._client_chunked else closing)

    def _ended_by_engine(self, summary: StreamSummary) -> bool:
        """Whether the endpoint's own end went by; should the tap have failed, the last event must tell.

        In Responses and Messages nothing comes after an error event of the engine's.
        """
        if Flag.TAP_DISABLED in summary.flags and self._dialect in DONE_DIALECTS:
            return b"data: [DONE]" in self._last
        return summary.done_marker or (summary.error is not None and self._dialect not in DONE_DIALECTS)

    def summary(self) -> StreamSummary:
        """What the tap measured; ends the measuring."""
        return self._tap.summary()


_DATA_BYTES: Final = len(b"data: ")
_MARKER_TAIL: Final = 64
