"""Instants and channel times: which gap belongs to which channel."""

from __future__ import annotations

import pytest

from gateway.core.stream.timeline import Timeline


def test_nothing_is_known_before_anything_came() -> None:
    timeline = Timeline()
    assert timeline.first_event is timeline.start is timeline.first_token is timeline.last_token is None
    assert timeline.gaps.count == 0


def test_first_and_last_event_are_kept() -> None:
    timeline = Timeline()
    for now in (1.0, 2.0, 3.0):
        timeline.event(now)
    assert (timeline.first_event, timeline.last_event, timeline.events) == (1.0, 3.0, 3)


def test_the_first_choice_to_begin_starts_the_window() -> None:
    timeline = Timeline()
    timeline.begin(1.0)
    timeline.begin(2.0)
    assert timeline.start == 1.0


def test_a_channel_s_time_is_the_sum_of_the_gaps_that_end_in_it() -> None:
    timeline = Timeline()
    timeline.begin(0.0)
    timeline.chunk(1.0, reasoning=3)
    timeline.chunk(3.0, reasoning=4)
    timeline.chunk(6.0, content=5)
    timeline.chunk(10.0, reasoning=1)
    timeline.chunk(15.0, content=2)
    assert (timeline.reasoning_s, timeline.content_s) == (1 + 2 + 4, 3 + 5)
    assert (timeline.reasoning_bytes, timeline.content_bytes, timeline.chunks) == (8, 7, 5)
    assert (timeline.first_token, timeline.first_visible, timeline.last_token) == (1.0, 6.0, 15.0)
    assert timeline.visible_gap_s == 3.0
    assert timeline.first_is_reasoning


def test_without_a_start_the_first_chunk_has_no_gap() -> None:
    timeline = Timeline()
    timeline.chunk(5.0, content=1)
    assert (timeline.content_s, timeline.first_token, timeline.first_is_reasoning) == (0.0, 5.0, False)


def test_a_gap_that_ends_in_two_channels_is_shared_out_by_length() -> None:
    timeline = Timeline()
    timeline.begin(0.0)
    timeline.chunk(4.0, reasoning=3, content=1)
    assert (timeline.reasoning_s, timeline.content_s, timeline.visible_gap_s) == (3.0, 1.0, 1.0)
    assert timeline.first_is_reasoning


def test_a_tool_chunk_is_a_token_but_not_visible() -> None:
    timeline = Timeline()
    timeline.begin(0.0)
    timeline.chunk(1.0, tool=10)
    assert (timeline.first_token, timeline.first_visible, timeline.tool_bytes) == (1.0, None, 10)
    assert timeline.reasoning_s == timeline.content_s == 0.0


def test_chunk_gaps_lie_between_token_bearing_chunks_only() -> None:
    timeline = Timeline()
    timeline.begin(0.0)
    timeline.chunk(1.0, reasoning=1)
    timeline.event(1.5)
    timeline.chunk(2.0, content=1)
    timeline.chunk(2.0, content=1)
    assert timeline.gaps.count == 2
    assert timeline.gaps.quantile(0.5) == 0.0
    assert timeline.gaps.longest_s == pytest.approx(1.0)
