"""Counters and histograms that cost next to nothing to add to, and their families for a page.

A settled request makes a dozen observations.  The metrics library takes a lock and checks for each of them, since any
thread may come; control counts on one thread, so plain numbers do, and the library makes the page only.  Not safe for
several threads: :meth:`Tallies.picture` is taken where the counting is done, and may be turned into families anywhere.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.telemetry.series import Series

Labels = tuple[str, ...]


class Count:
    """The counter of one series; a series without labels is there from the start, at 0."""

    __slots__ = ("_values", "series")

    def __init__(self, series: Series) -> None:
        self.series: Final = series
        self._values: dict[Labels, float] = {} if series.labels else {(): 0.0}

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        """Add ``amount`` under ``labels``, given in the order of the series."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def values(self) -> dict[Labels, float]:
        """The counts as they are now."""
        return dict(self._values)


class Distribution:
    """One histogram: how many values lie under each bound, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last one is of what lies over every bound
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count ``value`` under the first bound that is not below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def values(self) -> tuple[tuple[int, ...], float]:
        """Counts (not cumulative) and sum as they are now."""
        return tuple(self._counts), self._sum


class Histograms:
    """The histograms of one series by their labels."""

    __slots__ = ("_known", "series")

    def __init__(self, series: Series) -> None:
        self.series: Final = series
        self._known: dict[Labels, Distribution] = {}

    def of(self, *labels: str) -> Distribution:
        """The histogram under ``labels``, made at first use; to be kept by whoever observes often."""
        found = self._known.get(labels)
        if found is None:
            found = self._known[labels] = Distribution(self.series.buckets)
        return found

    def values(self) -> dict[Labels, tuple[tuple[int, ...], float]]:
        """Every histogram as it is now."""
        return {labels: known.values() for labels, known in self._known.items()}


class Tallies:
    """Every counter and histogram of a registry, in the order in which they were made."""

    def __init__(self) -> None:
        self._all: list[Count | Histograms] = []

    def count(self, series: Series) -> Count:
        """A new counter."""
        made = Count(series)
        self._all.append(made)
        return made

    def histograms(self, series: Series) -> Histograms:
        """A new histogram for each combination of labels."""
        made = Histograms(series)
        self._all.append(made)
        return made

    def picture(self) -> Picture:
        """All of them at one moment; costs a copy of the numbers."""
        return Picture(
            counts=tuple((it.series, it.values()) for it in self._all if isinstance(it, Count)),
            histograms=tuple((it.series, it.values()) for it in self._all if isinstance(it, Histograms)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture(Collector):
    """Numbers that no longer change, as the metrics library's families."""

    counts: tuple[tuple[Series, dict[Labels, float]], ...]
    histograms: tuple[tuple[Series, dict[Labels, tuple[tuple[int, ...], float]]], ...]

    def collect(self) -> Iterator[Metric]:
        """Every family once, histograms first."""
        for series, distributions in self.histograms:
            family = HistogramMetricFamily(series.name, series.help, labels=series.labels)
            bounds = [_spelled(bound) for bound in (*series.buckets, math.inf)]
            for labels, (counts, total) in distributions.items():
                family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
            yield family
        for series, values in self.counts:
            counter = CounterMetricFamily(series.name, series.help, labels=series.labels)
            for labels, value in values.items():
                counter.add_metric(labels, value)
            yield counter


def _spelled(bound: float) -> str:
    """A bound as Prometheus writes it."""
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call] # the library's, without types
