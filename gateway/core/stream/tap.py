"""The tap: reads a copy of an answer while it is relayed and hands back what it measured.

Relay station, after the write.  Fed with decoded body bytes in any cut; knows nothing of HTTP, sockets or clients.
It must never disturb a stream: events that cannot be read are counted, and a failure inside switches the tap off for
the rest of the stream and is flagged.  Its state does not grow with the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, assert_never

from gateway.core.stream.answer import Answer
from gateway.core.stream.body import summarise_body
from gateway.core.stream.chat import ChatReader, CompletionsReader
from gateway.core.stream.chunk import UNREADABLE
from gateway.core.stream.delivery.mode import ThinkTags
from gateway.core.stream.messages import MessagesReader
from gateway.core.stream.report import Defects, report_replay, report_stream
from gateway.core.stream.responses import ResponsesReader
from gateway.core.stream.sse import EventFramer
from gateway.core.stream.stencil import Stencil
from gateway.core.stream.summary import Dialect, Flag, RequestShape, StreamSummary
from gateway.core.stream.tagged import TaggedReader

__all__ = ["EventReader", "Tap", "summarise_body"]


class EventReader(Protocol):
    """Writes what the events of one dialect mean into an answer."""

    def read(self, data: bytes, now: float, name: str) -> None:
        """Take in one event; raises one of `UNREADABLE` and changes nothing when its data cannot be read."""


class Tap:
    """Measures one stream; owner: the relay of that request.

    An event counts at the instant ``now`` of the piece that completes it, so pieces that share an instant give the
    same summary however they are cut.  ``on_id`` is told the id of a response as soon as it is known.
    """

    __slots__ = ("_answer", "_bad_events", "_disabled", "_framer", "_read", "_shape", "_timeline", "stencil")

    def __init__(
        self,
        dialect: Dialect,
        shape: RequestShape,
        *,
        max_event_bytes: int,
        tags: ThinkTags | None = None,
        on_id: Callable[[str], None] | None = None,
    ) -> None:
        """``tags``: reasoning stands in the text, between tags; ``on_id`` hears the id of a response."""
        self._answer = Answer()
        self._timeline = self._answer.timeline
        self._framer = EventFramer(max_event_bytes)
        self.stencil = Stencil(max_event_bytes)
        self._read = _make_reader(dialect, self._answer, self.stencil, tags=tags, on_id=on_id).read
        self._shape = shape
        self._bad_events = 0
        self._disabled = False

    def feed(self, data: bytes, now: float) -> None:
        """Read decoded body bytes that came at monotonic ``now``; never raises."""
        if self._disabled:
            return
        try:
            payload = self._framer.single(data)
            if payload is not None:
                self._take(payload, now, "")
                return
            for name, payload in self._framer.feed(data):
                self._take(payload, now, name)
        except Exception:  # noqa: BLE001  (a defect of ours must cost the numbers of this stream, never the stream)
            self._disabled = True

    def feed_chunks(self, chunks: Iterable[tuple[bytes | int, float]]) -> None:
        """Read short HTTP chunks, whole events each, and when each came.

        A chunk has its framing (hexadecimal digits, no extension); the ``stencil`` may have been asked already, then
        what it said stands in its place.  Never raises.
        """
        if self._disabled:
            return
        fits, steady = self.stencil.fits, self._timeline.steady
        try:
            for data, now in chunks:
                if isinstance(data, int):
                    steady(now, data)
                    continue
                start = data.find(b"\n") + 1
                text_bytes = fits(data, start) if self._framer.idle else 0
                if text_bytes:
                    steady(now, text_bytes)
                else:
                    self.feed(data[start:-2], now)
        except Exception:  # noqa: BLE001  (as in feed)
            self._disabled = True

    def close(self, now: float) -> StreamSummary:
        """Return what was measured of a stream up to ``now``; changes nothing, and may be asked at any time."""
        defects = Defects(bad_events=self._bad_events, oversize_events=self._framer.oversize, disabled=self._disabled)
        try:
            if self._shape.replay:
                return report_replay(self._answer, defects=defects, now=now)
            return report_stream(self._answer, self._shape, defects=defects, now=now)
        except Exception:  # noqa: BLE001  (as in feed: the request must settle whatever happened in here)
            return StreamSummary(events=self.events, flags=(Flag.TAP_DISABLED,))

    @property
    def events(self) -> int:
        """How many events came so far; comments are none."""
        return self._answer.timeline.events

    def _take(self, payload: bytes, now: float, name: str) -> None:
        self._timeline.event(now)
        try:
            self._read(payload, now, name)
        except UNREADABLE:
            self._retry(payload, now, name)

    def _retry(self, payload: bytes, now: float, name: str) -> None:
        """Read an event again with its invalid UTF-8 replaced, as every client's decoder would; else count it."""
        try:
            self._read(payload.decode("utf-8", "replace").encode(), now, name)
        except UNREADABLE:
            self._bad_events += 1


def _make_reader(
    dialect: Dialect, answer: Answer, stencil: Stencil, *, tags: ThinkTags | None, on_id: Callable[[str], None] | None
) -> EventReader:
    match dialect:
        case Dialect.CHAT | Dialect.COMPLETIONS if tags is not None:
            return TaggedReader(answer, tags)
        case Dialect.CHAT | Dialect.TRANSCRIPTION | Dialect.OPAQUE:  # the last has no streams
            return ChatReader(answer, stencil)
        case Dialect.COMPLETIONS:
            return CompletionsReader(answer, stencil)
        case Dialect.RESPONSES:
            return ResponsesReader(answer, on_id)
        case Dialect.MESSAGES:
            return MessagesReader(answer)
        case _:
            assert_never(dialect)
