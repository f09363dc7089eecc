"""Unequal engines in fake time: how fast streams are by measured rate, and how it follows engines that change.

The engines are models of two that are simulated elsewhere: a large one over PCIe, whose streams slow each other down a
lot, and a small one on a fast card, whose streams hardly do.
"""

from __future__ import annotations

import statistics
from math import log2

import pytest

from gateway.core.routing.curve import OLD_S
from gateway.core.routing.policy import Policy
from tests.fakes.routed_fleet import Rate, RoutedFleet

LARGE = {1: 80.7, 2: 74.1, 4: 63.9, 8: 50.7, 16: 36.9, 32: 25.5, 64: 17.8, 256: 8.7}
SMALL = {1: 196.6, 2: 195.8, 4: 194.3, 8: 191.4, 16: 185.8, 32: 175.4, 64: 157.9, 256: 97.0}
"""Tokens per second of each of so many streams."""

WARM_UP_S, WINDOW_S = 50.0, 60.0


def rate_of(table: dict[int, float], streams: float) -> float:
    known = sorted(table)
    above = next(it for it in known if it >= streams)
    below = max((it for it in known if it <= streams), default=above)
    if above == below:
        return table[above]
    part = log2(streams / below) / log2(above / below)
    return table[below] + part * (table[above] - table[below])


def engine(table: dict[int, float], *, factor: float = 1.0) -> Rate:
    return lambda streams, _: factor * rate_of(table, streams)


class Seen:
    """What a policy made of engines of such factors."""

    def __init__(self, policy: Policy, table: dict[int, float], *factors: float, streams: int, workers: int) -> None:
        engines = {chr(ord("a") + number): engine(table, factor=factor) for number, factor in enumerate(factors)}
        self.fleet = RoutedFleet(engines=engines, policy=policy, streams=streams, workers=workers)
        self.fleet.run(WARM_UP_S + WINDOW_S)
        paces = self.fleet.paces(self.fleet.now - WINDOW_S)
        self.mean = statistics.fmean(paces)
        self.tenth, *_, self.median, _, _, _, _ = statistics.quantiles(paces, n=10)

    @property
    def counts(self) -> dict[str, float]:
        """The mean number of streams by backend."""
        return counts(self.fleet, self.fleet.now - WINDOW_S, WINDOW_S)


def counts(fleet: RoutedFleet, since: float, seconds: float) -> dict[str, float]:
    looks = [it for it in fleet.looks if since <= it.at < since + seconds]
    return {name: statistics.fmean(it.counts[name] for it in looks) for name in fleet.engines}


def both(table: dict[int, float], *factors: float, streams: int, workers: int) -> tuple[Seen, Seen]:
    """By measured rate, and by least in flight."""
    by_rate, by_load = (
        Seen(policy, table, *factors, streams=streams, workers=workers)
        for policy in (Policy.MEASURED_RATE, Policy.LEAST_IN_FLIGHT)
    )
    return by_rate, by_load


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("streams", [2, 8, 24, 64])
@pytest.mark.parametrize(
    "table, slow", [(LARGE, 0.5), (LARGE, 0.6), (SMALL, 0.5)], ids=["large-0.5", "large-0.6", "small-0.5"]
)
def test_the_slowest_tenth_is_much_faster_and_the_mean_is_no_lower(
    table: dict[int, float], slow: float, streams: int, workers: int
) -> None:
    """Of the streams at any moment.  The median by least in flight is one engine's or the other's, as it happens."""
    by_rate, by_load = both(table, 1.0, slow, streams=streams, workers=workers)
    assert by_rate.tenth > 1.2 * by_load.tenth
    assert by_rate.mean > 0.99 * by_load.mean


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("streams", [4, 24])
@pytest.mark.parametrize("table", [LARGE, SMALL], ids=["large", "small"])
def test_where_most_engines_are_slow_the_median_is_much_faster(
    table: dict[int, float], streams: int, workers: int
) -> None:
    by_rate, by_load = both(table, 1.0, 0.5, 0.5, 0.5, streams=streams, workers=workers)
    assert by_rate.median > 1.2 * by_load.median
    assert by_rate.mean > 0.99 * by_load.mean


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("streams", [2, 4, 24])
@pytest.mark.parametrize("table", [LARGE, SMALL], ids=["large", "small"])
def test_equal_engines_lose_nothing(table: dict[int, float], streams: int, workers: int) -> None:
    by_rate, by_load = both(table, 1.0, 1.0, streams=streams, workers=workers)
    assert by_rate.median > 0.96 * by_load.median
    assert by_rate.tenth > 0.94 * by_load.tenth
    assert by_rate.mean > 0.97 * by_load.mean


def test_answers_that_are_over_before_the_next_reading_are_measured_too() -> None:
    engines = {"a": engine(SMALL), "b": engine(SMALL, factor=0.5)}
    fleet = RoutedFleet(engines=engines, per_s=10.0, tokens=60.0).run(60.0)
    assert counts(fleet, fleet.now - 30.0, 30.0)["b"] < 0.3


def test_an_engine_that_does_not_tell_the_time_between_tokens_is_measured_by_its_tokens() -> None:
    engines = {"a": engine(LARGE), "b": engine(LARGE, factor=0.5)}
    fleet = RoutedFleet(engines=engines, streams=24, tells_decode_s=False).run(60.0)
    assert 17 < counts(fleet, fleet.now - 20.0, 20.0)["a"] < 22


def test_strangers_on_an_engine_are_reckoned_with() -> None:
    engines = {"a": engine(LARGE), "b": engine(LARGE)}
    fleet = RoutedFleet(engines=engines, streams=12, strangers={"a": 12}).run(60.0)
    assert counts(fleet, fleet.now - 20.0, 20.0)["b"] > 10


# --- engines that change ---

CHANGED_AT, BACK_AT = 1100.0, 1200.0


def changing(table: dict[int, float], streams: int, workers: int, *, until: float) -> RoutedFleet:
    """Engine a is half as fast for a while."""

    def rate(count: int, now: float) -> float:
        return rate_of(table, count) * (0.5 if CHANGED_AT <= now < BACK_AT else 1.0)

    fleet = RoutedFleet(engines={"a": rate, "b": engine(table)}, streams=streams, workers=workers)
    return fleet.run(until - fleet.now)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("streams", [24, 64])
def test_an_engine_that_becomes_slow_or_well_again_is_known_within_half_a_minute(streams: int, workers: int) -> None:
    """Ten readings, and as long as streams that are there already take to end."""
    fleet = changing(LARGE, streams, workers, until=BACK_AT + 60.0)
    half = streams / 2
    assert counts(fleet, CHANGED_AT - 20.0, 20.0)["a"] == pytest.approx(half, rel=0.15)
    assert counts(fleet, CHANGED_AT + 30.0, 20.0)["a"] < 0.6 * half
    assert counts(fleet, BACK_AT + 30.0, 20.0)["a"] == pytest.approx(half, rel=0.2)


@pytest.mark.parametrize("streams", [2, 8, 24])
@pytest.mark.parametrize("workers", [1, 4])
def test_an_engine_that_nobody_uses_any_more_is_tried_again_and_comes_back(streams: int, workers: int) -> None:
    fleet = changing(SMALL, streams, workers, until=BACK_AT + OLD_S + 60.0)
    assert counts(fleet, CHANGED_AT + 30.0, 20.0)["a"] < 0.1 * streams
    assert counts(fleet, fleet.now - 30.0, 30.0)["a"] > 0.25 * streams


def test_an_engine_that_stays_slow_gets_one_request_each_two_minutes() -> None:
    fleet = RoutedFleet(engines={"a": engine(SMALL), "b": engine(SMALL, factor=0.5)}, streams=8).run(100.0)
    before = fleet.made["b"]
    fleet.run(3 * OLD_S + 60.0)
    assert 2 <= fleet.made["b"] - before <= 4


def test_what_a_heavy_load_taught_does_not_mislead_a_light_one() -> None:
    fleet = RoutedFleet(engines={"a": engine(LARGE), "b": engine(LARGE, factor=0.5)}, streams=64).run(60.0)
    fleet.streams = 2
    fleet.run(60.0)
    assert counts(fleet, fleet.now - 20.0, 20.0)["a"] > 1.8
