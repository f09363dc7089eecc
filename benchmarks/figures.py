"""Medians, spreads, percentiles and ratios of what the runs gave. Pure arithmetic.

A ratio is taken inside one round (both relays ran within seconds of each other) and then summed up over the rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of `rounds` values, all in the unit of the values."""

    median: float
    low: float
    high: float
    rounds: int


def spread(values: Sequence[float]) -> Spread | None:
    """Sum up the values of several rounds; None when there is none."""
    if not values:
        return None
    return Spread(median=statistics.median(values), low=min(values), high=max(values), rounds=len(values))


def ratios(values: Sequence[float | None], reference: Sequence[float | None]) -> Spread | None:
    """The spread of value / reference, round by round; a round where either is missing does not count."""
    pairs = [(value, base) for value, base in zip(values, reference, strict=True) if value is not None and base]
    return spread([value / base for value, base in pairs])


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value at or below which `share` (0 to 1) of the values lie (nearest rank); None when there is none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def difference(value: float | None, reference: float | None) -> float | None:
    """The value less the reference, where both are known."""
    return None if value is None or reference is None else value - reference
