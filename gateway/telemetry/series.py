"""What a metric is: name, kind, labels, meaning and, for histograms, why its buckets.

The catalogues :mod:`request_series` and :mod:`fleet_series` are made of these; ``/metrics`` and ``docs/metrics.md`` are
made from the catalogues.  Labels come from closed sets only: configured names, names that backends report (bounded),
and the closed words of outcomes and states.  There are no exemplars: they would tie a metric to a request id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What Prometheus calls the type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric.  ``buckets`` are upper bounds; ``why`` says what they are good for."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    why: str = ""


def series_of(catalogue: type) -> Iterator[Series]:
    """Every metric of a catalogue, in its order."""
    for value in vars(catalogue).values():
        if isinstance(value, Series):
            yield value
