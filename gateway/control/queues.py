"""What operators see of the pools' queues: how many wait, how long the longest has, how many were not let in.

Made of the workers' last heartbeats at the moment of a report.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gateway.core.link.messages import Heartbeat
from gateway.ports import PoolReport


def with_queues(
    pools: Iterable[PoolReport], beats: Iterable[Heartbeat], refusals: Mapping[str, int], *, now: float
) -> tuple[PoolReport, ...]:
    """``pools`` with their queues over all workers; ``refusals`` by "pool|reason", ``now`` monotonic."""
    waiting, since = Counter[str](), dict[str, float]()
    for beat in beats:
        for pool, counts in beat.flows.items():
            waiting[pool] += sum(count for count, _ in counts.values())
        for pool, began in beat.waits.items():
            since[pool] = min(began, since.get(pool, began))
    refused = Counter[str]()
    for key, count in refusals.items():
        refused[key.rpartition("|")[0]] += count
    return tuple(
        replace(
            pool,
            waiting=waiting[pool.name],
            longest_wait_s=max(0.0, now - since[pool.name]) if waiting[pool.name] and pool.name in since else None,
            refused=refused[pool.name],
        )
        for pool in pools
    )


def refused_by_reason(refusals: Mapping[str, int]) -> dict[str, int]:
    """Requests that were not let in, over all pools, those of none among them."""
    found = Counter[str]()
    for key, count in refusals.items():
        found[key.rpartition("|")[2]] += count
    return dict(found)
