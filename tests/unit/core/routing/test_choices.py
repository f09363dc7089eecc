"""The ways to choose a backend: by weight, of two, by session, by predicted rate."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from gateway.core.routing.backend import BackendState
from gateway.core.routing.choices import by_session, fastest, least_by_weight, power_of_two, to_be_tried
from gateway.core.routing.rendezvous import number_of
from gateway.core.routing.snapshot import BackendView


def backend(name: str) -> BackendView:
    return BackendView(name=name, pool="p", url="http://127.0.0.1:1", state=BackendState.SERVING)


A, B, C = backend("a"), backend("b"), backend("c")
SEEDS = {name: number_of(name.encode()) for name in "abc"}


def half() -> float:
    return 0.5


def draws(*numbers: float) -> Iterator[float]:
    return iter(numbers)


def test_the_fewest_for_its_weight_win() -> None:
    loads = {"a": 8, "b": 1}
    weights = {"a": 1.0, "b": 0.1}
    chosen = least_by_weight([A, B], loads.__getitem__, weigh=lambda b: weights[b.name], draw=lambda: 0.5)
    assert chosen is A, "1 at a tenth of the weight is more than 8"


def test_an_idle_backend_of_a_tenth_s_weight_gets_about_a_tenth_of_its_part() -> None:
    source, weights = random.Random(7), {"a": 1.0, "b": 0.1}
    got = Counter(
        least_by_weight([A, B], lambda _: 0, weigh=lambda b: weights[b.name], draw=source.random).name
        for _ in range(4000)
    )
    assert got["b"] / 4000 == pytest.approx(0.05, abs=0.012)


def test_of_two_drawn_ones_the_emptier_wins_and_the_third_is_not_looked_at() -> None:
    loads = {"a": 3, "b": 1, "c": 0}
    drawn = draws(0.0, 0.0)  # the first of three, then the first of the other two
    assert power_of_two([A, B, C], loads.__getitem__, draw=lambda: next(drawn)) is B


def test_two_different_ones_are_drawn_however_the_numbers_fall() -> None:
    loads = {"a": 1, "b": 0, "c": 1}
    for first in (0.0, 0.34, 0.99):
        for second in (0.0, 0.99):
            drawn = draws(first, second)
            assert power_of_two([A, B], loads.__getitem__, draw=lambda drawn=drawn: next(drawn)) is B
    assert power_of_two([A], loads.__getitem__, draw=lambda: 0.0) is A


def test_of_two_drawn_ones_the_weight_counts_too() -> None:
    loads, weights = {"a": 4, "b": 1}, {"a": 1.0, "b": 0.1}
    drawn = draws(0.0, 0.0, 0.5, 0.5)
    chosen = power_of_two([A, B], loads.__getitem__, weigh=lambda b: weights[b.name], draw=lambda: next(drawn))
    assert chosen is A


def test_a_session_stays_where_it_is_until_that_has_more_than_its_part() -> None:
    session = next(n for n in range(100) if by_session([A, B], lambda _: 0, session=n, seeds=SEEDS) is A)

    def go(**loads: int) -> str:
        return by_session([A, B], loads.__getitem__, session=session, seeds=SEEDS).name

    assert go(a=0, b=0) == "a"
    assert go(a=1, b=0) == "a", "2 of 2 are within 1.25 times the mean, rounded up"
    assert go(a=2, b=0) == "b"
    assert go(a=11, b=10) == "a"
    assert go(a=14, b=7) == "b"


def test_the_part_of_a_backend_in_its_slow_start_is_smaller() -> None:
    session = next(n for n in range(100) if by_session([A, B], lambda _: 0, session=n, seeds=SEEDS) is A)
    loads, weights = {"a": 2, "b": 10}, {"a": 0.1, "b": 1.0}
    assert by_session([A, B], loads.__getitem__, session=session, seeds=SEEDS) is A
    weighed = by_session([A, B], loads.__getitem__, session=session, seeds=SEEDS, weigh=lambda b: weights[b.name])
    assert weighed is B


RATES = {"a": 100.0, "b": 60.0}


def rate(name: str, streams: int) -> float | None:
    """Each stream as fast as its part of the whole."""
    total = RATES.get(name)
    return None if total is None else total / streams


def test_a_stream_goes_where_it_will_be_fastest_itself_counted() -> None:
    loads = {"a": 0, "b": 0}
    for _ in range(16):
        chosen = fastest([A, B], loads.__getitem__, rate=rate, draw=half, turn=0)
        assert chosen is not None
        loads[chosen.name] += 1
    assert loads == {"a": 10, "b": 6}


def test_of_those_that_are_about_as_fast_the_one_with_the_fewest_gets_it() -> None:
    rates = {"a": 100.0, "b": 96.0, "c": 94.0}

    def go(**loads: int) -> BackendView | None:
        return fastest([A, B, C], loads.__getitem__, rate=lambda name, _: rates[name], draw=half, turn=0)

    assert go(a=3, b=2, c=0) is B, "c is not within 5 % of the fastest"
    assert go(a=1, b=2, c=0) is A


def test_an_idle_backend_of_which_all_is_old_is_to_be_tried() -> None:
    loads = {"a": 0, "b": 1, "c": 0}
    assert to_be_tried([A, B, C], loads.__getitem__, old={"b", "c"}) is C
    assert to_be_tried([A, B, C], loads.__getitem__, old={"b"}) is None


def test_what_was_never_measured_gets_no_more_than_the_fastest_and_no_less() -> None:
    assert fastest([A, C], {"a": 1, "c": 1}.__getitem__, rate=rate, draw=half, turn=0) is C
    assert fastest([A, C], {"a": 1, "c": 2}.__getitem__, rate=rate, draw=half, turn=0) is A
    assert fastest([backend("d"), C], {"d": 1, "c": 0}.__getitem__, rate=rate, draw=half, turn=0) is C
    assert fastest([], {}.__getitem__, rate=rate, draw=half, turn=0) is None


def test_in_its_slow_start_a_backend_counts_as_if_it_had_more_streams() -> None:
    weights = {"a": 0.5, "b": 1.0, "c": 0.1}

    def go(*backends: BackendView, **loads: int) -> BackendView | None:
        return fastest(backends, loads.__getitem__, rate=rate, weigh=lambda b: weights[b.name], draw=half, turn=0)

    assert go(A, B, a=0, b=0) is B, "100 / 2 are less than 60"
    assert go(A, B, a=0, b=1) is A
    assert go(B, C, b=4, c=0) is B
    assert go(B, C, b=5, c=0) is C
