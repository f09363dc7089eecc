"""The tap: reads a copy of an answer while it is relayed and hands back what it measured.

Relay station, after the write.  Fed with decoded body bytes in any cut; knows nothing of HTTP, sockets or clients.
It must never disturb a stream: bad events are counted, a failure inside switches the tap off for the rest of the
stream and is flagged.
"""

from __future__ import annotations

from gateway.core.stream.summary import Dialect, RequestShape, StreamSummary


class Tap:
    """Measures one stream.  Owner: the relay of that request."""

    __slots__ = ("_events", "_saw_error", "_terminal")

    def __init__(self, dialect: Dialect, shape: RequestShape, *, max_event_bytes: int) -> None:
        self._events = 0
        self._terminal = False
        self._saw_error = False

    def feed(self, data: bytes, now: float) -> None:
        """Read decoded body bytes that came at monotonic ``now``."""

    def close(self, now: float) -> StreamSummary:
        """End the stream and return what was measured; the tap must not be fed afterwards."""
        return StreamSummary()

    @property
    def terminal(self) -> bool:
        """Whether the engine itself finished the answer."""
        return self._terminal

    @property
    def saw_error(self) -> bool:
        """Whether the engine sent an error inside the stream."""
        return self._saw_error

    @property
    def events(self) -> int:
        """How many events came so far."""
        return self._events


def summarise_body(dialect: Dialect, body: bytes, shape: RequestShape) -> StreamSummary:
    """Read a whole answer that is no stream: counts, finish reasons, engine metrics; no instants, no rates."""
    return StreamSummary()
