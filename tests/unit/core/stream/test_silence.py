"""When silence ends a request: a dialogue with the one timer."""

from __future__ import annotations

import pytest

from gateway.core.routing.snapshot import TimerPolicy
from gateway.core.stream.silence import RECHECK_S, PulseReading, PulseTrack, Silence, judge_silence
from gateway.core.stream.summary import Ending

TIMERS = TimerPolicy(first_event_s=600, stall_s=120, silent_max_s=600, pulse_fresh_s=6)


def judge(
    now: float,
    *,
    last: float | None = None,
    blocked: bool = False,
    track: PulseTrack | None = None,
    timers: TimerPolicy = TIMERS,
) -> Silence:
    """Ask at ``now`` about a request sent at 1000."""
    return judge_silence(
        timers, now=now, sent_at=1000, last_byte_at=last, blocked=blocked, pulses=track or PulseTrack(600)
    )


def track(*readings: tuple[float, float]) -> PulseTrack:
    """Readings of (read_at, tokens)."""
    made = PulseTrack(600)
    for read_at, tokens in readings:
        made.add(PulseReading(read_at, tokens))
    return made


def test_before_the_first_event_its_own_timer_counts() -> None:
    assert judge(1000) == Silence(1600)
    assert judge(1599.9) == Silence(1600)
    assert judge(1600).ending is Ending.FIRST_EVENT_TIMEOUT


def test_after_it_the_stall_timer_counts_from_the_last_byte() -> None:
    assert judge(1200, last=1150) == Silence(1270)
    assert judge(1270, last=1150).ending is Ending.STALL_TIMEOUT


def test_a_client_that_is_behind_stops_the_stall_timer() -> None:
    assert judge(1270, last=1150, blocked=True) == Silence(1390)


@pytest.mark.parametrize(
    "readings",
    [
        (),
        ((1265.0, 50.0),),
        ((1151.0, 50.0), (1260.0, 90.0)),
        ((1151.0, 50.0), (1268.0, 50.0)),
        ((1100.0, 50.0), (1149.0, 90.0), (1268.0, 90.0)),
    ],
    ids=["none", "one-reading", "old", "still", "advanced-before-the-last-byte"],
)
def test_without_a_fresh_advance_a_silent_engine_is_dead(readings: tuple[tuple[float, float], ...]) -> None:
    assert judge(1270, last=1150, track=track(*readings)).ending is Ending.STALL_TIMEOUT


def test_an_advancing_engine_is_given_until_the_longest_silence() -> None:
    alive = track((1151, 50), (1268, 51))
    assert judge(1270, last=1150, track=alive) == Silence(1270 + RECHECK_S)
    late = track((1151, 50), (1748, 900))
    assert judge(1749.5, last=1150, track=late) == Silence(1750)
    assert judge(1750, last=1150, track=late).ending is Ending.STALL_TIMEOUT


def test_a_counter_that_went_back_belongs_to_another_life() -> None:
    restarted = track((1151, 5000), (1262, 10), (1268, 10))
    assert judge(1270, last=1150, track=restarted).ending is Ending.STALL_TIMEOUT
    assert judge(1270, last=1150, track=track((1151, 5000), (1262, 10), (1268, 11))).ending is None


def test_readings_older_than_the_window_are_forgotten() -> None:
    kept = PulseTrack(10)
    for second in range(100):
        kept.add(PulseReading(float(second), float(second)))
    assert kept.advancing_since(0, now=99, fresh_s=6)
    assert not kept.advancing_since(99, now=99, fresh_s=6)


def test_the_total_time_wins_over_everything() -> None:
    timers = TimerPolicy(total_s=100)
    assert judge(1050, timers=timers) == Silence(1100)
    assert judge(1050, last=1040, timers=timers) == Silence(1100)
    assert judge(1050, last=1040, blocked=True, timers=timers) == Silence(1100)
    assert judge(1100, last=1099, timers=timers).ending is Ending.TOTAL_TIMEOUT
