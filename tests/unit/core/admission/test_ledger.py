"""Many limits, each with its book: what a worker is told, and what survives it."""

from __future__ import annotations

from gateway.core.admission.ledger import Claim, Ledger, Limit, ShareTable, places_on, queue_of
from gateway.core.admission.shares import AWAIT_S, Want


def joined(*slots: int, workers: int = 2, **limits: Limit) -> Ledger:
    ledger = Ledger(workers=workers, inherited=False)
    ledger.set_limits(limits, now=0.0)
    for slot in slots:
        ledger.join(slot, slot, now=0.0)
        ledger.beat(slot, {})
    return ledger


def out(ledger: Ledger, *slots: int, now: float = 0.0) -> dict[int, dict[str, int]]:
    ledger.share_out(fresh=slots, now=now)
    return {slot: ledger.news(slot) for slot in slots}


def test_each_limit_is_shared_out_and_only_what_is_new_is_told() -> None:
    ledger = joined(0, 1, a=Limit(total=10), b=Limit(total=4))
    assert out(ledger, 0, 1) == {0: {"a": 5, "b": 2}, 1: {"a": 5, "b": 2}}
    assert out(ledger, 0, 1) == {0: {}, 1: {}}
    assert ledger.news("nobody") == {}


def test_a_limit_that_comes_later_knows_every_worker_and_one_that_goes_is_forgotten() -> None:
    ledger = joined(0, 1, a=Limit(total=10))
    out(ledger, 0, 1)
    ledger.set_limits({"b": Limit(total=8)}, now=1.0)
    for slot in (0, 1):
        ledger.beat(slot, {"a": Claim(0, 5)})
    assert out(ledger, 0, 1, now=1.0) == {0: {"b": 4}, 1: {"b": 4}}


def test_a_worker_that_connects_anew_is_told_everything_anew() -> None:
    ledger = joined(0, workers=1, a=Limit(total=10))
    assert out(ledger, 0) == {0: {"a": 10}}
    ledger.leave(0, now=1.0)
    ledger.join(0, 0, now=1.0)
    ledger.beat(0, {"a": Claim(3, 10)})
    assert out(ledger, 0, now=1.0) == {0: {"a": 10}}


def test_a_limit_that_is_set_anew_keeps_its_book() -> None:
    ledger = joined(0, workers=1, a=Limit(total=10))
    out(ledger, 0)
    ledger.beat(0, {"a": Claim(4, 10)})
    ledger.set_limits({"a": Limit(total=20)}, now=1.0)
    assert out(ledger, 0, now=1.0) == {0: {"a": 20}}


def test_where_requests_wait_there_the_shares_go() -> None:
    ledger = joined(0, 1, a=Limit(total=2))
    out(ledger, 0, 1)
    ledger.beat(0, {"a": Claim(1, 1, waiting=4)})
    ledger.beat(1, {"a": Claim(0, 1)})
    assert out(ledger, 0, 1) == {0: {}, 1: {"a": 0}}
    ledger.beat(1, {})
    assert out(ledger, 0, 1) == {0: {"a": 2}, 1: {}}


def test_demand_from_outside_goes_before_the_workers_own_word() -> None:
    ledger = joined(0, 1, a=Limit(total=8))
    for slot in (0, 1):
        ledger.beat(slot, {"a": Claim(4, 4)})
    ledger.share_out(fresh=[0, 1], now=0.0, wants=lambda _: {0: Want(10, 1.0), 1: Want(10, 3.0)})
    assert ledger.news(0) == {"a": 2}


def test_what_a_worker_spent_of_a_day_stays_spent_when_it_is_gone() -> None:
    ledger = joined(0, workers=1, day=Limit(total=100, spent=True))
    ledger.beat(0, {"day": Claim(30, 100)})
    assert ledger.spent() == {}
    ledger.leave(0, now=1.0)
    ledger.join("successor", 0, now=2.0)
    ledger.beat("successor", {})
    assert ledger.spent() == {"day": 30}
    assert out(ledger, "successor", now=2.0) == {"successor": {"day": 70}}  # type: ignore[arg-type,comparison-overlap]
    ledger.new_day()
    assert ledger.spent() == {}


def test_a_control_that_begins_anew_counts_what_the_history_says_less_what_living_workers_say() -> None:
    ledger = Ledger(workers=1, inherited=True)
    ledger.set_limits({"day": Limit(total=100, spent=True)}, now=0.0, used=lambda _: 50)
    assert ledger.spent() == {"day": 50}
    ledger.join(0, 0, now=0.0)
    ledger.beat(0, {"day": Claim(40)})
    assert ledger.spent() == {"day": 10}
    ledger.beat(0, {"day": Claim(60)})
    assert ledger.spent() == {"day": 10}


def test_a_worker_that_never_comes_back_is_given_up_and_stays_in_the_books_of_the_day() -> None:
    ledger = joined(0, 1, day=Limit(total=100, spent=True), a=Limit(total=10))
    ledger.beat(1, {"day": Claim(20, 0)})
    ledger.leave(1, now=1.0)
    ledger.beat(0, {})
    ledger.share_out(fresh=[0], now=1.0 + AWAIT_S)
    assert ledger.spent() == {"day": 20}
    ledger.new_day()


def test_a_worker_without_siblings_has_all_and_one_with_siblings_what_it_was_told() -> None:
    assert ShareTable(lone=True).of("x", 10) == 10
    table = ShareTable(lone=False)
    assert table.of("x", 10) == 0
    table.take({"x": 6})
    assert (table.of("x", 10), table.of("x", 4)) == (6, 4)
    assert table.claim("x", holding=2, waiting=1) == Claim(2, 6, 1)
    assert table.claim("y", holding=0) == Claim(0, None, 0)
    assert (places_on("b"), queue_of("p")) == ("backend:b", "queue:p")


def test_what_counts_against_a_limit_is_what_all_hold_and_what_is_spent_by_those_who_are_gone() -> None:
    ledger = joined(0, 1, day=Limit(total=100, spent=True), places=Limit(total=10))
    ledger.beat(0, {"day": Claim(20), "places": Claim(2), "elsewhere": Claim(3)})
    ledger.beat(1, {"day": Claim(30), "places": Claim(1), "elsewhere": Claim(4)})
    assert [ledger.held(it) for it in ("day", "places", "elsewhere", "unknown")] == [50, 3, 7, 0]
    ledger.leave(1, now=1.0)
    assert ledger.held("day") == 50, "it may live yet"
    ledger.join(2, 1, now=2.0)  # another process in its place
    for claims in ({}, {"day": Claim(5)}):
        ledger.beat(2, claims)
    assert [ledger.held(it) for it in ("day", "places", "elsewhere")] == [55, 2, 3]
