"""Who needs places on backends, at which worker, and with what weight: so that fairness holds over all workers.

A key's weight is divided over the workers by where its requests are.  A worker's part of a pool's places is the sum of
what its flows have of their keys' weights, and within the worker a flow counts with its own part: together a key gets
by its weight, however its connections fell.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from gateway.core.admission.shares import Want

Flows = Mapping[str, Mapping[str, tuple[int, int]]]
"""Pool -> key id -> requests that wait and requests that are served."""

_STEP = 0.05
"""Parts of a weight are told in steps: every single request would change them otherwise."""


@dataclass(slots=True)
class Demand:
    """``wants``: pool -> worker -> what it asks for; ``parts``: worker -> pool -> key id -> its part of the weight."""

    wants: dict[str, dict[Hashable, Want]] = field(default_factory=dict)
    parts: dict[Hashable, dict[str, dict[str, float]]] = field(default_factory=dict)


def demand_of(flows: Mapping[Hashable, Flows], weights: Mapping[str, float]) -> Demand:
    """The demand of all workers by their ``flows``; ``weights`` by key id, 1 where there is none."""
    totals: dict[str, Counter[str]] = {}
    for of_worker in flows.values():
        for pool, counts in of_worker.items():
            total = totals.setdefault(pool, Counter())
            for key_id, (waiting, serving) in counts.items():
                total[key_id] += waiting + serving
    found = Demand()
    for worker, of_worker in flows.items():
        for pool, counts in of_worker.items():
            wanted = found.wants.setdefault(pool, {})
            weight = 0.0
            for key_id, (waiting, serving) in counts.items():
                part = (waiting + serving) / max(1, totals[pool][key_id])
                weight += weights.get(key_id, 1.0) * part
                if part < 1.0:
                    told = max(_STEP, round(part / _STEP) * _STEP)
                    found.parts.setdefault(worker, {}).setdefault(pool, {})[key_id] = round(told, 2)
            wanted[worker] = Want(sum(waiting for waiting, _ in counts.values()), max(1e-6, weight))
    return found
