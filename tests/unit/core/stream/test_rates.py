"""Rates from instants and counts, on streams whose true speed is known."""

from __future__ import annotations

import pytest

from gateway.core.stream.counts import TokenCounts
from gateway.core.stream.rates import Rates, decode_window, measure_rates
from gateway.core.stream.summary import Exactness
from gateway.core.stream.timeline import Timeline

STEP_S = 1 / 80


def counts_of(completion: int, reasoning: int | None, *, hidden: bool = False) -> TokenCounts:
    content = completion - reasoning if reasoning is not None else None
    return TokenCounts(
        completion=completion,
        reasoning=reasoning,
        content=content,
        total=Exactness.EXACT,
        split=Exactness.EXACT,
        reasoning_hidden=hidden,
    )


def played(channels: str, *, start: float = 10.0, step_s: float = STEP_S, end_token: bool = False) -> Timeline:
    """Play a stream of one token a step: r reasoning, c content, - a token without text; the first at ``start``."""
    timeline = Timeline()
    timeline.begin(start)
    for number, channel in enumerate(channels):
        now = start + number * step_s
        match channel:
            case "r":
                timeline.chunk(now, reasoning=4)
            case "c":
                timeline.chunk(now, content=4)
            case _:
                pass
        timeline.finish = now
    if end_token:
        timeline.finish = start + len(channels) * step_s
    return timeline


def rates_of(timeline: Timeline, counts: TokenCounts, *, choices: int = 1, acceptance: float | None = None) -> Rates:
    return measure_rates(timeline, counts, choices=choices, acceptance=acceptance)


def test_80_tokens_a_second_of_which_half_are_seen_feel_like_40() -> None:
    rates = rates_of(played("r" * 256 + "c" * 256), counts_of(512, 256))
    assert rates.decode_tps == pytest.approx(80)
    assert rates.reasoning_tps == pytest.approx(80)
    assert rates.visible_tps == pytest.approx(80)
    assert rates.effective_visible_tps == pytest.approx(40, rel=0.005)
    assert rates.step_time_s == pytest.approx(STEP_S)


@pytest.mark.parametrize("reasoning,content", [(40, 40), (10, 300), (300, 10)])
def test_unseen_markers_and_end_token_bend_no_rate(reasoning: int, content: int) -> None:
    # vLLM counts the opening marker, the closing marker and the end token; none of them has text.
    timeline = played("-" + "r" * reasoning + "-" + "c" * content, end_token=True)
    rates = rates_of(timeline, counts_of(reasoning + content + 3, reasoning))
    for rate in (rates.decode_tps, rates.reasoning_tps, rates.visible_tps):
        assert rate == pytest.approx(80)


def test_a_role_event_just_before_the_first_chunk_is_the_same_step() -> None:
    timeline = played("c" * 3, end_token=True)
    timeline.start = 10.0 - 0.00002
    rates = rates_of(timeline, counts_of(4, 0))
    assert rates.visible_tps == pytest.approx(80, rel=0.001)


def test_a_one_token_answer_has_no_visible_rate() -> None:
    timeline = played("c", end_token=True)
    timeline.start = 10.0 - 0.00002
    rates = rates_of(timeline, counts_of(2, 0))
    assert rates.decode_tps == pytest.approx(80, rel=0.002)
    assert rates.visible_tps is None


def test_a_finish_event_of_its_own_right_after_the_last_chunk_is_no_token() -> None:
    timeline = played("c" * 65)
    timeline.finish = timeline.finish + 0.00002 if timeline.finish is not None else None
    assert rates_of(timeline, counts_of(65, 0)).visible_tps == pytest.approx(80, rel=0.001)


def test_phases_may_alternate() -> None:
    rates = rates_of(played("rrrrccccrrrrccccrrrrcccc" * 10), counts_of(240, 120))
    assert rates.reasoning_tps == pytest.approx(80)
    assert rates.visible_tps == pytest.approx(80)


def test_channels_of_different_speed_are_told_apart() -> None:
    timeline = Timeline()
    timeline.begin(0.0)
    timeline.chunk(0.0, reasoning=1)
    for number in range(1, 101):
        timeline.chunk(number * 0.01, reasoning=1)
    for number in range(1, 101):
        timeline.chunk(1.0 + number * 0.02, content=1)
    timeline.finish = 3.0
    rates = rates_of(timeline, counts_of(201, 101))
    assert rates.reasoning_tps == pytest.approx(100)
    assert rates.visible_tps == pytest.approx(50)
    assert rates.decode_tps == pytest.approx(200 / 3)


def test_hidden_reasoning_is_not_taken_for_a_slow_answer() -> None:
    timeline = played("-" * 200 + "c" * 200)
    rates = rates_of(timeline, counts_of(400, 199, hidden=True))
    assert rates.decode_tps == pytest.approx(80)
    assert rates.visible_tps == pytest.approx(80, rel=0.01)
    assert rates.effective_visible_tps == pytest.approx(40, rel=0.01)
    assert rates.reasoning_tps is None


def test_reasoning_alone_has_no_visible_rates() -> None:
    rates = rates_of(played("-" + "r" * 20), counts_of(21, 20))
    assert rates.reasoning_tps == pytest.approx(80)
    assert rates.visible_tps is None
    assert rates.effective_visible_tps is None


def test_several_tokens_a_chunk_change_no_rate() -> None:
    timeline = Timeline()
    timeline.begin(0.0)
    timeline.chunk(0.0, content=4)
    for number in range(1, 26):
        timeline.chunk(number * 4 * STEP_S, content=16)
    timeline.finish = 25 * 4 * STEP_S
    rates = rates_of(timeline, counts_of(101, 0), acceptance=4.0)
    assert rates.decode_tps == pytest.approx(80)
    assert rates.visible_tps == pytest.approx(80)
    assert rates.step_time_s == pytest.approx(4 * STEP_S), "a step of the engine makes four tokens"


def test_several_choices_have_a_total_rate_only() -> None:
    rates = rates_of(played("c" * 101), counts_of(202, None), choices=2)
    assert rates == Rates(decode_tps=pytest.approx(160))


def test_without_a_split_there_is_a_total_rate_and_a_step_time() -> None:
    rates = rates_of(played("c" * 101), counts_of(101, None))
    assert rates == Rates(decode_tps=pytest.approx(80), step_time_s=pytest.approx(STEP_S))


def test_without_events_that_mark_it_the_window_is_first_to_last_token() -> None:
    timeline = Timeline()
    for number in range(101):
        timeline.chunk(5.0 + number * STEP_S, content=4)
    window = decode_window(timeline)
    assert window is not None
    assert (window.start, window.end, window.marked) == (5.0, pytest.approx(6.25), False)
    assert rates_of(timeline, counts_of(101, 0)).decode_tps == pytest.approx(80)


def test_a_stream_that_broke_off_is_measured_up_to_its_last_token() -> None:
    timeline = played("-" + "r" * 100)
    timeline.finish = None
    window = decode_window(timeline)
    assert window is not None
    assert (window.start, window.end, window.marked) == (10.0, pytest.approx(11.25), False)


@pytest.mark.parametrize(
    "timeline,counts",
    [
        (Timeline(), counts_of(5, 0)),
        (played("c"), counts_of(1, 0)),
        (played("cc", step_s=0.0), counts_of(2, 0)),
        (played("cc"), TokenCounts()),
    ],
    ids=["no token came", "one token", "all at once", "nothing counted"],
)
def test_where_there_is_nothing_to_divide_there_is_no_rate(timeline: Timeline, counts: TokenCounts) -> None:
    assert rates_of(timeline, counts) == Rates()
