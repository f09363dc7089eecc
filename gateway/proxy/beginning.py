"""Station relay, before the client's first byte: what waits so that a real status is still possible.

Comments wait for the first event: they say nothing of the request, and once they are out its failure could only be
told inside a 200.  From a backend that we are stopping everything waits for a token, since an abort without one means
that nothing of the request was accepted and it can go elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.routing.retry import aborted_before_a_token
from gateway.core.stream.sse import has_field
from gateway.core.stream.summary import StreamSummary


class Beginning:
    """Owner of the whole events that wait; its owner bounds them by ``held_bytes``."""

    __slots__ = ("_fields", "_stopping", "_waiting", "aborted", "held_bytes")

    def __init__(self, *, stopping: bool) -> None:
        self._stopping = stopping
        self._waiting: list[bytes] = []
        self._fields = False  # something else than comments waits
        self.aborted = False
        self.held_bytes = 0

    def take(self, events: bytes, so_far: Callable[[], StreamSummary]) -> bytes:
        """Take whole events; returns everything that may go now, b"" while the client should have nothing.

        ``so_far`` gives what the tap has seen, ``events`` included.
        """
        self._waiting.append(events)
        self.held_bytes += len(events)
        self._fields = self._fields or has_field(events)
        if self._must_wait(so_far):
            return b""
        return self.release()

    @property
    def may_open(self) -> bool:
        """Whether the answer may begin before an event: not while its request may yet go elsewhere."""
        return not self._stopping

    def release(self) -> bytes:
        """Everything that waits, whatever it is."""
        released = b"".join(self._waiting)
        self._waiting.clear()
        self.held_bytes = 0
        return released

    def _must_wait(self, so_far: Callable[[], StreamSummary]) -> bool:
        if not self._fields:
            return True
        if not self._stopping:
            return False
        seen = so_far()
        self.aborted = aborted_before_a_token(seen)
        return self.aborted or not (seen.chunks or seen.finish_reasons or seen.error)
