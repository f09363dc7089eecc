"""The workers: what they hold, what they have counted, their shares, and who has drained."""

from __future__ import annotations

import itertools

import pytest

from gateway.control.link import WorkerRef
from gateway.control.roster import FRESH_S, Roster
from gateway.core.admission.shares import ShareBook
from gateway.core.link.messages import DrainAck, Heartbeat
from gateway.telemetry.figures import OutcomeKey
from gateway.telemetry.labels import ClosedSet

sessions = itertools.count(1)


def roster(*, workers: int = 1) -> Roster:
    shares = ShareBook(workers=workers, inherited=False, now=0.0)
    return Roster(models=ClosedSet(["m", "odd|name"]), backends=ClosedSet(["a", "b"]), shares=shares)


def worker(slot: int = 0, *, pid: int = 100) -> WorkerRef:
    return WorkerRef(session=next(sessions), slot=slot, pid=pid + slot, started_wall=1.0)


def beat(*, in_flight: dict[str, int] | None = None, outcomes: dict[str, int] | None = None, **given: int) -> Heartbeat:
    load = in_flight or {}
    values = {"slot": 0, "generation": 1, "holding": sum(load.values()), "connections": 0} | given
    return Heartbeat(sent_at=0.0, in_flight=load, outcomes=outcomes or {}, **values)


def joined(count: int = 1, *, now: float = 0.0) -> tuple[Roster, list[WorkerRef]]:
    crew = roster(workers=count)
    refs = [worker(slot) for slot in range(count)]
    for ref in refs:
        crew.join(ref, now=now)
    return crew, refs


# --- counting ---


def test_what_workers_add_is_added_to_totals() -> None:
    crew, (one, two) = joined(2)
    crew.beat(one, beat(outcomes={"chat|m|a|ok|200": 3}), now=0.0)
    crew.beat(two, beat(outcomes={"chat|m|a|ok|200": 4, "chat|m|a|ok|206": 1}), now=0.0)
    crew.beat(one, beat(outcomes={"chat|m|a|ok|200": 5}), now=0.5)
    assert crew.totals == {OutcomeKey("chat", "m", "a", "ok", "2xx"): 10}


def test_totals_stay_when_a_worker_ends_and_its_successor_counts_from_zero() -> None:
    crew, (one,) = joined()
    crew.beat(one, beat(outcomes={"chat|m|a|ok|200": 3}, dropped=2, tap_failures=1), now=0.0)
    crew.leave(one, now=1.0)
    two = worker(pid=200)
    crew.join(two, now=1.0)
    crew.beat(two, beat(outcomes={"chat|m|a|ok|200": 1}, dropped=1), now=1.0)
    assert sum(crew.totals.values()) == 4
    assert (crew.dropped, crew.tap_failures) == (3, 1)


def test_a_worker_that_comes_back_after_its_connection_broke_is_not_counted_twice() -> None:
    crew, (one,) = joined()
    crew.beat(one, beat(outcomes={"chat|m|a|ok|200": 3}, dropped=2), now=0.0)
    crew.leave(one, now=1.0)
    again = worker()
    crew.join(again, now=1.0)
    assert crew.beat(again, beat(outcomes={"chat|m|a|ok|200": 4}, dropped=5), now=1.0) == 3
    assert sum(crew.totals.values()) == 4


def test_a_worker_that_comes_back_before_its_old_connection_ended_is_one_worker() -> None:
    crew, (one,) = joined()
    crew.beat(one, beat(in_flight={"a": 2}), now=0.0)
    again = worker()
    crew.join(again, now=1.0)
    crew.beat(again, beat(in_flight={"a": 2}), now=1.0)
    assert crew.in_flight() == {"a": 2}
    assert crew.leave(one, now=1.0) is None
    assert len(crew) == 1


@pytest.mark.parametrize(
    "text,key",
    [
        ("chat|m|a|ok|200", OutcomeKey("chat", "m", "a", "ok", "2xx")),
        ("chat|odd|name|a|ok|200", OutcomeKey("chat", "odd|name", "a", "ok", "2xx")),
        ("chat|m||rejected|429", OutcomeKey("chat", "m", "", "rejected", "4xx")),
        ("chat|secret|ghost|nonsense|0", OutcomeKey("chat", "other", "other", "other", "none")),
        ("", OutcomeKey("", "", "", "other", "none")),
    ],
)
def test_outcomes_are_counted_under_closed_labels(text: str, key: OutcomeKey) -> None:
    crew, (one,) = joined()
    crew.beat(one, beat(outcomes={text: 1}), now=0.0)
    assert dict(crew.totals) == {key: 1}


def test_endpoints_are_bounded() -> None:
    crew, (one,) = joined()
    crew.beat(one, beat(outcomes={f"e{number}|m|a|ok|200": 1 for number in range(500)}), now=0.0)
    assert len(crew.totals) == 65
    assert crew.totals[OutcomeKey("other", "m", "a", "ok", "2xx")] == 500 - 64


def test_counters_of_ended_workers_are_remembered_only_so_far() -> None:
    crew = roster()
    for number in range(1000):
        ref = worker(pid=number * 10)
        crew.join(ref, now=0.0)
        crew.beat(ref, beat(outcomes={"chat|m|a|ok|200": 1}), now=0.0)
        crew.leave(ref, now=0.0)
    assert sum(crew.totals.values()) == 1000
    assert len(crew._counted) == 256


def test_totals_are_summed_by_what_is_asked_for() -> None:
    crew, (one,) = joined()
    crew.beat(one, beat(outcomes={"chat|m|a|ok|200": 3, "chat|m|b|ok|200": 1, "chat|m|a|rejected|400": 2}), now=0.0)
    assert crew.requests_by(lambda key: key.outcome) == {"ok": 4, "rejected": 2}
    assert crew.requests_by(lambda key: key.backend) == {"a": 5, "b": 1}


# --- what they hold ---


def test_what_a_worker_holds_leaves_with_its_connection() -> None:
    crew, (one, two) = joined(2)
    crew.beat(one, beat(in_flight={"a": 2, "b": 1}), now=0.0)
    crew.beat(two, beat(in_flight={"a": 1, "b": 0}, holding=4), now=0.0)
    assert (crew.in_flight(), crew.holding) == ({"a": 3, "b": 1}, 7)
    assert crew.leave(one, now=1.0) == 3
    assert (crew.in_flight(), crew.holding) == ({"a": 1}, 4)


def test_messages_of_a_worker_that_left_change_nothing() -> None:
    crew, (one,) = joined()
    crew.leave(one, now=1.0)
    assert crew.beat(one, beat(outcomes={"chat|m|a|ok|200": 3}, dropped=9), now=0.0) == 0
    crew.acknowledge(one, DrainAck(slot=0, backend="a", generation=1, in_flight=0))
    assert (dict(crew.totals), crew.in_flight(), len(crew)) == ({}, {}, 0)


# --- shares ---


def shares(crew: Roster, limit: int, *, now: float = 0.0) -> dict[int, tuple[int, dict[str, int]]]:
    return {ref.slot: (it.in_flight_limit, it.others_in_flight) for ref, it in crew.new_shares(limit, now=now)}


def test_one_worker_has_the_whole_limit_and_no_others() -> None:
    crew, (one,) = joined()
    assert not crew.has_spoken(one)
    assert shares(crew, 100) == {}, "nobody knows yet what it holds"
    crew.beat(one, beat(in_flight={"a": 5}), now=0.0)
    assert crew.has_spoken(one)
    assert shares(crew, 100) == {0: (100, {})}


def test_a_share_is_what_a_worker_holds_and_an_even_part_of_the_rest() -> None:
    crew, (one, two, three) = joined(3)
    crew.beat(one, beat(in_flight={"a": 40}), now=0.0)
    for other in (two, three):
        crew.beat(other, beat(), now=0.0)
    assert shares(crew, 100) == {0: (60, {}), 1: (20, {"a": 40}), 2: (20, {"a": 40})}


def test_a_worker_is_told_only_when_its_share_or_the_others_load_changed() -> None:
    crew, (one, two) = joined(2)
    for ref in (one, two):
        crew.beat(ref, beat(), now=0.0)
    assert shares(crew, 100) == {0: (50, {}), 1: (50, {})}
    for ref in (one, two):
        crew.beat(ref, beat(share=50), now=0.0)
    assert shares(crew, 100) == {}
    crew.beat(one, beat(in_flight={"a": 1}, share=50), now=0.0)
    assert shares(crew, 100) == {1: (50, {"a": 1})}
    assert shares(crew, 100) == {}


def test_a_silent_worker_counts_with_all_that_it_may_hold() -> None:
    crew, (one, two) = joined(2)
    crew.beat(one, beat(in_flight={"a": 10}, share=50), now=0.0)
    crew.beat(two, beat(in_flight={"a": 50}, share=50), now=FRESH_S + 1)
    assert shares(crew, 100, now=FRESH_S + 1) == {0: (10, {"a": 50}), 1: (50, {"a": 10})}


def test_while_no_worker_is_fresh_nobody_is_raised() -> None:
    crew, (one, two) = joined(2)
    for ref in (one, two):
        crew.beat(ref, beat(), now=0.0)
    assert shares(crew, 100, now=FRESH_S + 1) == {0: (0, {}), 1: (0, {})}


def test_the_share_of_a_worker_that_left_goes_to_its_successor() -> None:
    crew, (one, two) = joined(2)
    for ref in (one, two):
        crew.beat(ref, beat(share=50), now=0.0)
    assert set(shares(crew, 100)) == {0, 1}
    crew.leave(two, now=1.0)
    crew.beat(one, beat(in_flight={"a": 50}, share=50), now=1.0)
    assert shares(crew, 100, now=1.0) == {}
    successor = worker(1, pid=200)
    crew.join(successor, now=1.0)
    crew.beat(successor, beat(), now=1.0)
    assert shares(crew, 100, now=1.0) == {0: (75, {}), 1: (25, {"a": 50})}


# --- freshness ---


def test_a_worker_that_falls_silent_is_told_once_until_it_is_heard_again() -> None:
    crew, (one,) = joined()
    assert crew.fell_silent(now=FRESH_S) == []
    assert crew.fell_silent(now=FRESH_S + 1) == [(one, FRESH_S + 1)]
    assert crew.fell_silent(now=FRESH_S + 2) == []
    crew.beat(one, beat(), now=FRESH_S + 3)
    assert [ref for ref, _ in crew.fell_silent(now=2 * FRESH_S + 4)] == [one]


def test_reports_stand_in_the_order_of_slots() -> None:
    crew, (one, two) = joined(2)
    crew.beat(two, beat(in_flight={"a": 3}, generation=9, connections=4, dropped=1), now=10.0)
    first, second = crew.reports(now=10.0)
    assert (first.slot, first.pid, first.fresh, first.generation, first.in_flight) == (0, one.pid, False, 0, 0)
    assert (second.slot, second.fresh, second.generation, second.in_flight, second.connections, second.dropped) == (
        1,
        True,
        9,
        3,
        4,
        1,
    )
    assert crew.silent_s(now=10.0) == {one.pid: 10.0, two.pid: 0.0}


# --- drain ---


def ack(*, generation: int, in_flight: int) -> DrainAck:
    return DrainAck(slot=0, backend="a", generation=generation, in_flight=in_flight)


def test_a_backend_is_drained_when_every_connected_worker_says_so_under_that_generation() -> None:
    crew, (one, two) = joined(2)
    assert crew.undrained("a", 5) == (one, two)
    crew.acknowledge(one, ack(generation=5, in_flight=2))
    crew.acknowledge(two, ack(generation=4, in_flight=0))
    assert crew.undrained("a", 5) == (one, two)
    crew.acknowledge(one, ack(generation=6, in_flight=0))
    assert crew.undrained("a", 5) == (two,)
    crew.leave(two, now=1.0)
    assert crew.undrained("a", 5) == ()
