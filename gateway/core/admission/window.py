"""The sum of what happened within the last so many seconds, in memory that does not grow with it.

Station admit.  For limits by the minute and for the pace of queues.  Pure: ``now`` is monotonic.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_GRAIN_S: Final = 1.0

Step = list[float]
"""When the last of a second came, and what came in it."""


class Window:
    """The sum of what was added within the last ``length_s``, in steps of a second, on the safe side."""

    __slots__ = ("_entries", "_length_s", "_sum")

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._entries: deque[Step] = deque()
        self._sum = 0.0

    def add(self, amount: float, now: float) -> Step:
        """Add ``amount``; returns the step that it stands in, to be taken back from."""
        entries = self._entries
        if entries and now // _GRAIN_S == entries[-1][0] // _GRAIN_S:
            entries[-1][0] = max(now, entries[-1][0])
            entries[-1][1] += amount
        else:
            entries.append([now, amount])
        self._sum += amount
        return entries[-1]

    def take_back(self, amount: float, step: Step, *, now: float) -> None:
        """What was added in ``step`` did not happen; nothing changes when it is forgotten already."""
        if step[0] > now - self._length_s:
            step[1] -= amount
            self._sum -= amount

    def level(self, now: float) -> float:
        """The sum at ``now``."""
        entries, since = self._entries, now - self._length_s
        while entries and entries[0][0] <= since:
            self._sum -= entries.popleft()[1]
        if not entries:
            self._sum = 0.0  # nothing is left of rounding either
        return self._sum

    def paced(self, now: float) -> tuple[float, float]:
        """How long from the first step within the window to the last, and the sum of what came after the first."""
        level, entries = self.level(now), self._entries
        return (entries[-1][0] - entries[0][0], level - entries[0][1]) if entries else (0.0, 0.0)

    def falls_below(self, bound: float, now: float) -> float:
        """How long until the sum is below ``bound`` if nothing is added; 0: it is."""
        level = self.level(now)
        for at, amount in self._entries:
            if level < bound:
                return 0.0
            level -= amount
            if level < bound:
                return max(0.0, at + self._length_s - now)
        return 0.0 if level < bound else self._length_s
