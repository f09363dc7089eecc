"""What was measured against what was published, as rows and as a Markdown table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from benchmarks.report import table

SINGLE_WITHIN: Final = 0.02
HIGH_WITHIN: Final = 0.05
LOAD_WITHIN: Final = 0.02
SHARE_WITHIN: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one subject; ``measured`` is good from ``low`` to ``high``, both as shares of ``wanted``."""

    subject: str
    figure: str
    wanted: float
    measured: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Measured over wanted."""
        return self.measured / self.wanted

    @property
    def is_met(self) -> bool:
        """Whether it is good."""
        return self.low <= self.ratio <= self.high

    @property
    def allowed(self) -> str:
        """The bounds, for people."""
        if self.high == inf:
            return "at least"
        return "at most" if self.low == -inf else f"±{self.high - 1:.0%}"


def about(subject: str, figure: str, *, wanted: float, measured: float, within: float) -> Row:
    """A figure that may differ by a share to either side."""
    return Row(subject=subject, figure=figure, wanted=wanted, measured=measured, low=1 - within, high=1 + within)


def at_least(subject: str, figure: str, *, wanted: float, measured: float) -> Row:
    """A figure that may be larger."""
    return Row(subject=subject, figure=figure, wanted=wanted, measured=measured, low=1, high=inf)


def at_most(subject: str, figure: str, *, wanted: float, measured: float) -> Row:
    """A figure that may be smaller."""
    return Row(subject=subject, figure=figure, wanted=wanted, measured=measured, low=-inf, high=1)


def markdown(rows: Sequence[Row]) -> str:
    """The table for people."""
    header = ["what", "figure", "published or wanted", "measured", "difference", "allowed", "met"]
    return table(header, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    values = [f"{value:,.1f}" for value in (row.wanted, row.measured)]
    return [row.subject, row.figure, *values, f"{row.ratio - 1:+.1%}", row.allowed, "yes" if row.is_met else "NO"]
