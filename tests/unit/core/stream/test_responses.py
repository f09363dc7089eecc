"""What the events of a response mean."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.stream.summary import Dialect, EngineError, EngineMetrics, Exactness, Flag, StreamSummary
from tests.fakes.engine_events import DONE, event, summarise, typed

COUNTS = {"input_tokens": 7, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}}


def responded(*events: bytes) -> StreamSummary:
    return summarise(*events, dialect=Dialect.RESPONSES)


def end(kind: str = "response.completed", **fields: Any) -> bytes:
    return typed(kind, response={"status": kind.removeprefix("response."), "usage": COUNTS, **fields})


def test_a_whole_response_is_counted_and_timed_first_to_last_token() -> None:
    summary = responded(
        typed("response.created", response={"status": "in_progress", "usage": None}),
        typed("response.output_item.added", item={"type": "reasoning"}),
        typed("response.reasoning_text.delta", delta="one "),
        typed("response.reasoning_text.delta", delta="two "),
        typed("response.reasoning_text.done", text="one two "),
        typed("response.output_text.delta", delta="abc"),
        typed("response.output_text.delta", delta=""),
        typed("response.output_text.delta", delta="def"),
        end(metrics={"mean_itl_ms": 4.0}),
    )
    assert (summary.first_event, summary.first_token, summary.first_visible, summary.last_token) == (0, 2, 5, 7)
    assert (summary.window_start, summary.window_end) == (2, 7)
    assert (summary.events, summary.chunks, summary.choices) == (9, 4, 1)
    assert (summary.prompt_tokens, summary.completion_tokens) == (7, 5)
    assert (summary.reasoning_tokens, summary.content_tokens) == (2, 3)
    assert summary.decode_tps == 4 / 5
    assert summary.engine == EngineMetrics(mean_itl_ms=4.0)
    assert summary.flags == (Flag.NO_FINISH_WINDOW,)
    assert (summary.terminal, summary.done_marker, summary.finish_reasons) == (True, True, ("completed",))


@pytest.mark.parametrize("kind", ["response.reasoning_text.delta", "response.reasoning_summary_text.delta"])
def test_reasoning_has_these_types(kind: str) -> None:
    summary = responded(typed(kind, delta="abcd"), end())
    assert (summary.first_token, summary.first_visible) == (0, None)


@pytest.mark.parametrize("kind", ["response.output_text.delta", "response.refusal.delta"])
def test_content_has_these_types(kind: str) -> None:
    assert responded(typed(kind, delta="abcd"), end()).first_visible == 0


@pytest.mark.parametrize(
    "kind",
    [
        "response.function_call_arguments.delta",
        "response.mcp_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.code_interpreter_call_code.delta",
    ],
)
def test_tool_calls_have_these_types_and_leave_a_total_rate_only(kind: str) -> None:
    summary = responded(typed(kind, delta="ab"), typed(kind, delta="cd"), end())
    assert (summary.first_token, summary.first_visible, summary.chunks) == (0, None, 2)
    assert Flag.TOOL_CALLS in summary.flags
    assert (summary.decode_tps, summary.visible_tps, summary.content_tokens) == (4.0, None, None)


def test_other_deltas_are_no_tokens() -> None:
    assert responded(typed("response.audio.delta", delta="QUJD"), end()).chunks == 0


def test_the_name_counts_where_the_data_has_no_type() -> None:
    named = event({"delta": "abc"}, name="response.output_text.delta")
    assert responded(named).chunks == 1
    other = event({"type": "response.output_text.delta", "delta": "abc"}, name="something.else")
    assert responded(other).chunks == 1


@pytest.mark.parametrize(
    "last,terminal",
    [
        (end(), True),
        (end("response.incomplete"), True),
        (end(status="incomplete"), True),
        (end("response.cancelled"), False),
        (end(status="cancelled"), False),
        (end("response.failed", error={"code": "server_error", "message": "secret"}), False),
        (typed("response.completed"), False),
        (typed("response.completed", response={}), False),
        (DONE, False),
    ],
    ids=[
        "completed",
        "incomplete",
        "completed up to a limit",
        "cancelled",
        "aborted",
        "failed",
        "no response",
        "no status",
        "the end marker of chat",
    ],
)
def test_only_an_end_with_a_good_status_makes_a_response_finished(last: bytes, terminal: bool) -> None:
    assert responded(typed("response.output_text.delta", delta="a"), last).terminal is terminal


def test_a_response_that_stops_without_its_end_is_not_finished() -> None:
    summary = responded(typed("response.output_text.delta", delta="a"))
    assert (summary.terminal, summary.done_marker) == (False, False)
    assert summary.total_exactness is Exactness.ESTIMATED


@pytest.mark.parametrize(
    "failed",
    [
        typed("error", code="server_error", message="secret"),
        typed("error", error={"code": "server_error", "message": "secret"}),
        event({"error": {"code": "server_error", "message": "secret"}}),
        end("response.failed", error={"code": "server_error", "message": "secret"}),
    ],
    ids=["in the event", "in an object", "chat's envelope", "in the response"],
)
def test_errors_are_found_in_four_places(failed: bytes) -> None:
    summary = responded(failed)
    assert summary.error is not None
    assert summary.error.code == "server_error"
    assert "secret" not in repr(summary)


def test_a_plain_error_event_has_its_type() -> None:
    assert responded(typed("error", code=None)).error == EngineError(type="error")
