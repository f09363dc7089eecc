"""Fairness and quotas over several workers, whose only news of each other are control's shares."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.admission.keys import KeyLimits
from tests.fakes.crew import STEP_S, Crew

WARM_UP_S = 10.0


def saturated(crew: Crew, placed: dict[str, dict[int, int]], *, for_s: float) -> dict[str, float]:
    """Tokens by key while so many requests of each wait at each worker all the time, after a while of warming up."""
    for key, slots in placed.items():
        for slot, count in slots.items():
            for _ in range(count):
                crew.ask(slot, key, crew.chance.uniform(20, 80))
    ends = crew.now + WARM_UP_S
    while crew.now < ends + for_s:
        if crew.now < ends <= crew.now + STEP_S:
            crew.tokens.clear()
        for slot, key in crew.step():
            crew.ask(slot, key, crew.chance.uniform(20, 80))
    return dict(crew.tokens)


@pytest.mark.parametrize(
    "workers, placed",
    [
        (1, {"a": {0: 20}, "b": {0: 20}}),
        (3, {"a": {0: 8, 1: 8, 2: 8}, "b": {0: 8, 1: 8, 2: 8}}),
        (3, {"a": {0: 24}, "b": {1: 12, 2: 12}}),
        (3, {"a": {0: 20, 1: 4}, "b": {0: 4, 1: 20}}),
        (2, {"a": {0: 30}, "b": {1: 30}}),
        (3, {"a": {0: 60, 1: 60}, "b": {2: 20}}),
    ],
    ids=["one worker", "evenly", "apart", "askew", "one each", "a flood"],
)
def test_keys_of_weights_1_and_3_get_1_and_3_parts_of_the_tokens(
    workers: int, placed: dict[str, dict[int, int]]
) -> None:
    crew = Crew(workers, places=8, weights={"a": 1.0, "b": 3.0}, seed=7)
    tokens = saturated(crew, placed, for_s=60.0)
    assert tokens["b"] / tokens["a"] == pytest.approx(3.0, rel=0.1)
    assert crew.most_serving <= 8
    assert sum(tokens.values()) >= 0.9 * 8 * 100 * 60, "places stood empty while requests waited"


def test_the_only_place_goes_round_between_workers() -> None:
    crew = Crew(3, places=1, weights={"a": 1.0, "b": 1.0, "c": 1.0}, seed=3)
    tokens = saturated(crew, {"a": {0: 5}, "b": {1: 5}, "c": {2: 5}}, for_s=90.0)
    assert crew.most_serving == 1
    assert min(tokens.values()) >= 0.8 * max(tokens.values())


@settings(max_examples=25, deadline=None)
@given(
    workers=st.integers(1, 4),
    limit=st.integers(2, 120),
    seed=st.integers(0, 2**32),
    favourite=st.floats(0.0, 1.0),
)
def test_requests_a_minute_are_never_over_the_limit_and_reach_it_within_5_percent(
    workers: int, limit: int, seed: int, favourite: float
) -> None:
    """Of a key that asks for more than it may, at random workers or mostly at one."""
    crew = Crew(workers, limits={"k": KeyLimits(requests_per_minute=limit)}, seed=seed)
    times: list[float] = []
    while crew.now < 1000.0 + 190.0:
        crew.step()
        if crew.chance.random() < 0.1:
            slot = 0 if crew.chance.random() < favourite else crew.chance.randrange(workers)
            if crew.enter(slot, "k"):
                times.append(crew.now)
    for at, begun in enumerate(times):
        assert sum(begun <= it < begun + 60.0 for it in times[at:]) <= limit, "a minute had more than the limit"
    in_three_minutes = sum(it < 1000.0 + 180.0 for it in times)
    expected = 3 * limit
    assert in_three_minutes >= 0.95 * expected - 3 if workers > 1 else in_three_minutes >= expected - 3


@settings(max_examples=15, deadline=None)
@given(workers=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_tokens_a_minute_stay_within_5_percent_and_what_was_let_in_before_they_were_counted(
    workers: int, seed: int
) -> None:
    limit, cost = 20_000, 100
    crew = Crew(workers, limits={"k": KeyLimits(tokens_per_minute=limit)}, seed=seed)
    times: list[float] = []
    while crew.now < 1000.0 + 120.0:
        crew.step()
        if crew.chance.random() < 0.2 and crew.enter(crew.chance.randrange(workers), "k", tokens=cost):
            times.append(crew.now)
    for minute in (0, 1):
        begun = 1000.0 + 60.0 * minute
        spent = cost * sum(begun <= it < begun + 60.0 for it in times)
        assert spent <= 1.05 * limit + cost * workers
    assert cost * len(times) >= 0.95 * 2 * limit - cost * workers


@settings(max_examples=10, deadline=None)
@given(workers=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_tokens_a_day_are_spent_once_over_all_workers(workers: int, seed: int) -> None:
    limit, cost = 5_000, 50
    crew = Crew(workers, limits={"k": KeyLimits(tokens_per_day=limit)}, seed=seed)
    while crew.now < 1000.0 + 40.0:
        crew.step()
        if crew.chance.random() < 0.3:
            crew.enter(crew.chance.randrange(workers), "k", tokens=cost)
    assert 0.95 * limit <= crew.tokens["k"] <= limit + cost * workers
