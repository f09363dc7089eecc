"""The phases of a request, and the cells that they get."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.bar import Phase, shares, stretches
from gateway.core.stream.summary import Ending, Outcome, StreamSummary
from tests.fakes.admin_server import record, thinking_record


def phases(**more: Any) -> list[tuple[Phase, float, float]]:
    return [(item.phase, item.start_s, item.end_s) for item in stretches(record(0.0, "x", **more))]


def test_a_stream_that_thinks_has_every_phase() -> None:
    found = stretches(thinking_record(0.0, "x"))
    assert [item.phase for item in found] == [
        Phase.SENDING,
        Phase.WAITING,
        Phase.THINKING,
        Phase.ANSWERING,
        Phase.ENDING,
    ]
    assert (found[2].start_s, found[2].end_s) == (0.412, 3.604)


def test_a_stream_that_answers_at_once_does_not_think() -> None:
    found = phases(sent_s=0.1, ttft_s=0.5, ttfv_s=0.5, last_token_s=2.0, total_s=2.0)
    assert found == [(Phase.SENDING, 0.0, 0.1), (Phase.WAITING, 0.1, 0.5), (Phase.ANSWERING, 0.5, 2.0)]


def test_a_stream_of_reasoning_alone_thinks_to_the_end() -> None:
    summary = StreamSummary(reasoning_tokens=9, content_tokens=0)
    assert phases(sent_s=0.1, ttft_s=0.5, last_token_s=2.0, total_s=2.0, summary=summary)[-1] == (
        Phase.THINKING,
        0.5,
        2.0,
    )


def test_a_stream_of_tool_calls_answers() -> None:
    summary = StreamSummary(completion_tokens=9, content_tokens=9)
    assert phases(sent_s=0.1, ttft_s=0.5, last_token_s=2.0, total_s=2.0, summary=summary)[-1] == (
        Phase.ANSWERING,
        0.5,
        2.0,
    )


def test_a_whole_answer_is_waited_for() -> None:
    assert phases(stream=False, sent_s=0.1, total_s=2.0) == [(Phase.SENDING, 0.0, 0.1), (Phase.WHOLE, 0.1, 2.0)]


def test_a_stream_without_a_token_waits_to_the_end() -> None:
    failed = {"outcome": Outcome.UPSTREAM_TIMEOUT, "ending": Ending.FIRST_EVENT_TIMEOUT}
    assert phases(sent_s=0.1, total_s=600.0, **failed)[-1] == (Phase.WAITING, 0.1, 600.0)


def test_a_rejected_request_has_only_its_end() -> None:
    assert phases(outcome=Outcome.REJECTED, ending=Ending.REJECTED, total_s=0.002) == [(Phase.ENDING, 0.0, 0.002)]


def test_a_request_that_took_no_time_has_no_phase() -> None:
    assert phases(total_s=0.0) == []


@pytest.mark.parametrize(
    "parts, width, dealt", [([1, 1], 10, [5, 5]), ([0.001, 10], 10, [1, 9]), ([1, 1, 1], 10, [4, 3, 3]), ([5], 7, [7])]
)
def test_cells_are_dealt_in_proportion(parts: list[float], width: int, dealt: list[int]) -> None:
    assert shares(parts, width) == dealt


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=6), st.integers(6, 100))
def test_every_phase_gets_a_cell_and_the_sum_is_kept(parts: list[float], width: int) -> None:
    dealt = shares(parts, width)
    assert sum(dealt) == width
    assert min(dealt) >= 1
