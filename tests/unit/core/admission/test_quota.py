"""What a key has used, and when it may have more."""

from __future__ import annotations

import pytest

from gateway.core.admission.keys import KeyLimits
from gateway.core.admission.quota import DAY_S, DayCount, KeyMeter, Refusal, Resource, Window, judge, limits_of


def refusal(
    meter: KeyMeter, limits: KeyLimits, *, now: float = 0.0, now_wall: float = 0.0, part: float = 1.0
) -> Refusal | None:
    bounds = limits_of(limits)
    shares = {resource: int(limit * part) for resource, limit in bounds.items()}
    return judge(meter, bounds, shares=shares, now=now, now_wall=now_wall)


def test_a_window_forgets_what_is_older_than_its_length_and_never_earlier() -> None:
    window = Window(60.0)
    window.add(1, 100.2)
    window.add(2, 100.9)
    window.add(4, 130.0)
    assert window.level(130.0) == 7
    assert window.level(160.8) == 7, "the second's last one counts for all of them"
    assert window.level(160.9) == 4
    assert window.level(190.0) == 0


def test_what_is_taken_back_is_taken_from_when_it_came() -> None:
    window = Window(60.0)
    early, late = window.add(1, 0.0), window.add(1, 50.0)
    window.take_back(1, early, now=55.0)
    assert window.level(55.0) == 1
    assert window.level(60.0) == 1, "not one too few once the first is forgotten"
    window.take_back(1, early, now=70.0)
    window.take_back(1, late, now=200.0)
    assert window.level(200.0) == 0


def test_a_window_says_when_it_will_be_below_a_bound() -> None:
    window = Window(60.0)
    assert window.falls_below(1, 0.0) == 0.0
    window.add(5, 10.0)
    window.add(5, 20.0)
    assert window.falls_below(11, 30.0) == 0.0
    assert window.falls_below(10, 30.0) == 40.0
    assert window.falls_below(5, 30.0) == 50.0
    assert window.falls_below(0, 30.0) == 60.0, "never, in truth"


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
    assert found == Refusal(resource=Resource.CONCURRENCY, limit=2, retry_after_s=5.0, elsewhere=False)
    for at in range(3):
        meter.leave(one, 1.0 + at, served=True)
        one = meter.enter(1.0 + at)
    again = refusal(meter, limits, now=4.0)
    assert again is not None
    assert again.retry_after_s == 10.0, "three have ended within half a minute"
    meter.leave(one, 4.0, served=True)
    assert refusal(meter, limits, now=4.0) is None


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
