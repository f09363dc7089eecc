"""The pools' queues as operators see them, made of the workers' heartbeats."""

from __future__ import annotations

from typing import Any

from gateway.control.queues import refused_by_reason, with_queues
from gateway.core.link.messages import Heartbeat
from gateway.ports import PoolReport

POOLS = tuple(PoolReport(name=name, models=(), serving=1, backends=1, min_available=1) for name in ("p", "q"))


def beat(**given: Any) -> Heartbeat:
    return Heartbeat(slot=0, sent_at=0.0, generation=1, in_flight={}, holding=0, connections=0, outcomes={}, **given)


def test_requests_that_wait_are_counted_over_workers_and_keys_and_the_longest_wait_is_told() -> None:
    beats = (
        beat(flows={"p": {"a": (2, 9), "b": (1, 0)}}, waits={"p": 95.0}),
        beat(flows={"p": {"a": (4, 0)}, "gone": {"": (1, 0)}}, waits={"p": 93.5, "gone": 1.0}),
    )
    p, q = with_queues(POOLS, beats, {}, now=100.0)
    assert (p.waiting, p.longest_wait_s) == (7, 6.5)
    assert (q.waiting, q.longest_wait_s) == (0, None)


def test_where_nobody_waits_there_is_no_longest_wait() -> None:
    (p, _) = with_queues(POOLS, (beat(flows={"p": {"": (0, 3)}}),), {}, now=100.0)
    assert (p.waiting, p.longest_wait_s) == (0, None)


def test_refusals_are_told_by_pool_and_by_reason() -> None:
    refusals = {"p|queue_full": 2, "p|tokens_per_minute": 3, "q|queue_full": 4, "|invalid_api_key": 5}
    assert [it.refused for it in with_queues(POOLS, (), refusals, now=0.0)] == [5, 4]
    assert refused_by_reason(refusals) == {"queue_full": 6, "tokens_per_minute": 3, "invalid_api_key": 5}
