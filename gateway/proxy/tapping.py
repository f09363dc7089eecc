"""Station relay, the tap's side: reads wait here for the tap, which sees them in small batches after the write.

Owner of what the tap has not yet read and of the summary once the stream is over.  The batch bounds memory; running
the tap's code over several reads at once is what keeps it cheap on a busy machine (its instructions stay cached).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.core.stream.summary import StreamSummary
from gateway.core.stream.tap import Tap

TAP_BATCH: Final = 32
"""Reads that may wait; each is one short chunk, so 64 KiB at most (SHORT_MAX_BYTES)."""


class TapQueue:
    """The tap of one stream and the reads that wait for it."""

    __slots__ = ("_clock", "_summary", "_tap", "pending")

    def __init__(self, tap: Tap, clock: Callable[[], float]) -> None:
        self._tap = tap
        self._clock = clock
        self._summary: StreamSummary | None = None
        self.pending: list[tuple[bytes | int, float]] = []

    def run(self) -> None:
        """Have the tap read what waits: (one short HTTP chunk with its framing, or what the stencil said of it; when).

        Never raises: a failure inside switches the tap off and is flagged.
        """
        self._tap.feed_chunks(self.pending)
        self.pending.clear()

    def read(self, payloads: list[bytes], now: float) -> None:
        """Have the tap read body bytes that came at ``now``, after what waits."""
        self.run()
        self._tap.feed(payloads[0] if len(payloads) == 1 else b"".join(payloads), now)

    def so_far(self) -> StreamSummary:
        """What has been measured up to now; the stream goes on."""
        self.run()
        return self._tap.close(self._clock())

    def summary(self) -> StreamSummary:
        """What was measured of the whole stream; the first call ends it."""
        if self._summary is None:
            self._summary = self.so_far()
        return self._summary
