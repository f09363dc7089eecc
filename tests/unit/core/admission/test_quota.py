"""What a key has used, and when it may have more."""

from __future__ import annotations

import pytest

from gateway.core.admission.keys import KeyLimits
from gateway.core.admission.quota import DAY_S, DayCount, KeyMeter, Refusal, Resource, judge, limits_of


def refusal(
    meter: KeyMeter, limits: KeyLimits, *, now: float = 0.0, now_wall: float = 0.0, part: float = 1.0
) -> Refusal | None:
    bounds = limits_of(limits)
    shares = {resource: int(limit * part) for resource, limit in bounds.items()}
    return judge(meter, bounds, shares=shares, now=now, now_wall=now_wall)


def test_a_day_begins_at_midnight() -> None:
    day = DayCount()
    day.add(10, DAY_S * 5 - 1)
    day.add(1, DAY_S * 5 - 1)
    assert day.level(DAY_S * 5 - 0.5) == 11
    assert day.level(DAY_S * 5) == 0


def test_requests_at_once_are_refused_over_the_limit_and_let_in_when_one_has_ended() -> None:
    meter, limits = KeyMeter(), KeyLimits(concurrency=2)
    one = meter.enter(0.0)
    assert refusal(meter, limits) is None
    meter.enter(0.0)
    found = refusal(meter, limits)
    assert found == Refusal(resource=Resource.CONCURRENCY, limit=2, retry_after_s=10.0, elsewhere=False)
    for at in range(3):
        meter.leave(one, 4.0 * (at + 1), served=True)
        one = meter.enter(4.0 * (at + 1))
    again = refusal(meter, limits, now=12.0)
    assert again is not None
    assert again.retry_after_s == 4.0, "one every four seconds"
    meter.leave(one, 12.0, served=True)
    assert refusal(meter, limits, now=12.0) is None


def test_a_minute_has_no_more_requests_than_the_limit_and_those_that_no_backend_heard_of_do_not_count() -> None:
    meter, limits = KeyMeter(), KeyLimits(requests_per_minute=3)
    for at in range(3):
        assert refusal(meter, limits, now=10.0 * at) is None
        meter.leave(meter.enter(10.0 * at), 10.0 * at, served=True)
    found = refusal(meter, limits, now=30.0)
    assert found is not None
    assert (found.resource, found.retry_after_s) == (Resource.REQUESTS, 30.0)
    assert refusal(meter, limits, now=60.0) is None
    meter.leave(meter.enter(60.0), 60.0, served=False)
    assert refusal(meter, limits, now=60.0) is None


def test_tokens_are_charged_afterwards_and_may_overdraw_the_balance_once() -> None:
    meter, limits = KeyMeter(), KeyLimits(tokens_per_minute=100, tokens_per_day=150)
    meter.charge(99, now=0.0, now_wall=1000.0)
    assert refusal(meter, limits, now=1.0, now_wall=1001.0) is None
    meter.charge(500, now=1.0, now_wall=1001.0)
    found = refusal(meter, limits, now=2.0, now_wall=1002.0)
    assert found is not None
    assert (found.resource, found.retry_after_s) == (Resource.TOKENS, 59.0)
    day = refusal(meter, limits, now=70.0, now_wall=1070.0)
    assert day is not None
    assert (day.resource, day.retry_after_s) == (Resource.DAY, DAY_S - 1070.0)
    assert refusal(meter, limits, now=DAY_S, now_wall=DAY_S + 1) is None


@pytest.mark.parametrize("resource", list(Resource))
def test_a_share_that_is_used_up_is_told_from_a_limit_that_is(resource: Resource) -> None:
    names = dict(zip(Resource, KeyLimits.__struct_fields__, strict=False))
    limits = KeyLimits(**{names[resource]: 10})
    found = refusal(KeyMeter(), limits, part=0.0)
    assert found is not None
    assert (found.resource, found.elsewhere) == (resource, True)
    assert refusal(KeyMeter(), limits, part=0.5) is None


def test_limits_that_are_not_set_are_none() -> None:
    assert limits_of(KeyLimits()) == {}
    assert refusal(KeyMeter(), KeyLimits()) is None
    assert Resource.DAY.of("k") == "day:k"


def test_what_is_used_is_said_in_whole_numbers_on_the_safe_side() -> None:
    meter = KeyMeter()
    meter.enter(0.0)
    meter.charge(7, now=0.0, now_wall=0.0)
    assert [meter.holding(it, now=0.0, now_wall=0.0) for it in Resource] == [1, 1, 7, 7]
    meter.tokens.add(0.5, 0.0)
    assert meter.holding(Resource.TOKENS, now=0.0, now_wall=0.0) == 8


def test_what_is_set_aside_counts_until_it_is_given_back() -> None:
    meter = KeyMeter()
    reserve = meter.set_aside(100, now=0.0, now_wall=10.0)
    assert (meter.tokens.level(1.0), meter.day.level(11.0)) == (100, 100)
    meter.charge(5, now=2.0, now_wall=12.0)
    meter.back(reserve, now=3.0, now_wall=13.0)
    assert (meter.tokens.level(3.0), meter.day.level(13.0)) == (5, 5)


def test_what_the_minute_or_the_day_has_forgotten_is_not_given_back_twice() -> None:
    meter = KeyMeter()
    reserve = meter.set_aside(100, now=0.0, now_wall=DAY_S - 1)
    meter.charge(7, now=90.0, now_wall=DAY_S + 89)
    meter.back(reserve, now=90.0, now_wall=DAY_S + 89)
    assert (meter.tokens.level(90.0), meter.day.level(DAY_S + 89)) == (7, 7)
