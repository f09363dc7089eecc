"""Quantiles of chunk gaps in bounded memory.

A gap is the time between two token-bearing chunks.  Gaps are counted in buckets: every power of two is cut into 16
equal parts, so a quantile is read back within 1/32 (3.2 %) of a gap that was really there; the longest is exact.
Gaps under one microsecond count as zero and those over 16,384 s share one bucket, so there are at most 547 buckets
however long the stream is; a steady stream fills about ten.
"""

from __future__ import annotations

from math import frexp
from typing import Final

_PARTS: Final = 32  # of [0, 1); frexp's mantissa lies in [0.5, 1), which leaves 16 buckets to a power of two
_SHORTEST_S: Final = 1e-6
_LONGEST_S: Final = 16384.0
_ZERO: Final = -1000  # the bucket of gaps that are too short to tell from none: below every other key
_ENDLESS: Final = 1000  # the bucket of gaps that are too long to tell apart: above every other key


class GapHistogram:
    """Counts gaps; owner: one timeline."""

    __slots__ = ("_buckets", "longest_s")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.longest_s = 0.0

    @property
    def count(self) -> int:
        """How many gaps were counted."""
        return sum(self._buckets.values())

    def add(self, gap_s: float) -> None:
        """Count one gap in seconds; a negative one counts as zero."""
        if gap_s > self.longest_s:  # noqa: PLR1730  (once a chunk: a call of max costs as much as half of all this)
            self.longest_s = gap_s
        if gap_s < _SHORTEST_S:
            key = _ZERO
        elif gap_s < _LONGEST_S:
            mantissa, exponent = frexp(gap_s)
            key = exponent * _PARTS + int(mantissa * _PARTS)
        else:
            key = _ENDLESS
        try:
            self._buckets[key] += 1
        except KeyError:
            self._buckets[key] = 1

    def quantile(self, share: float) -> float | None:
        """Return the gap in seconds below or at which ``share`` (0 to 1) of the gaps lie; None without gaps.

        The nearest-rank definition: the smallest gap such that at least that share of the gaps is no longer.
        """
        rank = max(1, -int(-share * self.count // 1))
        seen = 0
        for key in sorted(self._buckets):
            seen += self._buckets[key]
            if seen >= rank:
                return min(_middle(key), self.longest_s)
        return None


def _middle(key: int) -> float:
    """Return the middle of a bucket; no gap in it is further away than half its width."""
    if key == _ZERO:
        return 0.0
    exponent, part = divmod(key, _PARTS)
    return float((part + 0.5) / _PARTS * 2.0**exponent)
