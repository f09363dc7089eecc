"""How fast places at the end of a queue become free, for who has to be told when to come back.

Station admit.  What counts are requests that end, not those that are served: at the start of a crowd many begin at once
and none has ended.  Pure: ``now`` is monotonic.
"""

from __future__ import annotations

from typing import Final

from gateway.core.admission.window import Window

WINDOW_S: Final = 30.0
"""The pace of the last half minute: long enough for answers of several seconds, short enough to follow a change."""

WAIT_MIN_S: Final = 1.0
WAIT_MAX_S: Final = 300.0
WAIT_UNKNOWN_S: Final = 10.0
"""While none has ended yet."""


class Drain:
    """The pace of one queue at one worker."""

    __slots__ = ("_busy_since", "_freed", "_freed_at", "_seen_at")

    def __init__(self) -> None:
        self._freed = Window(WINDOW_S)
        self._busy_since = 0.0
        self._seen_at: float | None = None  # of the last request that began or ended
        self._freed_at: float | None = None

    def began(self, now: float) -> None:
        """A request has taken a place."""
        if self._seen_at is None or now - self._seen_at > WINDOW_S:
            self._busy_since = now  # the idle time before is no sign of slowness
        self._seen_at = now

    def freed(self, now: float) -> None:
        """One has ended."""
        self._freed.add(1.0, now)
        self._seen_at = self._freed_at = now

    def wait_s(self, places: int, now: float) -> float:
        """How long until so many places have become free, as far as the pace tells.

        Where none did within the window, one a time since the last is the best that can be hoped for.
        """
        if self._freed_at is None:
            return WAIT_UNKNOWN_S
        freed, (over_s, after_first) = self._freed.level(now), self._freed.paced(now)
        if after_first > 0:
            each_s = over_s / after_first
        elif freed > 0:
            each_s = min(WINDOW_S, now - self._busy_since) / freed
        else:
            each_s = now - self._freed_at
        return min(WAIT_MAX_S, max(WAIT_MIN_S, places * each_s))
