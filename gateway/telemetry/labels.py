"""Closed sets of label values: a name that nobody configured never becomes a time series.

Used for every label that a client or an engine could choose: models, backends, profiles.  Names are remembered after
they left the fleet, so that counters go on; the bound keeps a fleet whose models change all day from growing the
registry without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OTHER: Final = "other"
"""The label value of everything that is not in the set."""

MAX_NAMES: Final = 256


class ClosedSet:
    """Names that may be label values; owned by the metrics."""

    def __init__(self, names: Iterable[str] = (), *, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._names: set[str] = set()
        self.allow(names)

    def allow(self, names: Iterable[str]) -> None:
        """Admit ``names``, as far as the bound allows."""
        for name in names:
            if len(self._names) < self._limit:
                self._names.add(name)

    def label(self, name: str) -> str:
        """``name`` if it is in the set, "" for "", else "other"."""
        return name if not name or name in self._names else OTHER
