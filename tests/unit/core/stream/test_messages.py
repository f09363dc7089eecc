"""What the events of a message mean."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.stream.summary import Dialect, EngineError, Exactness, Flag, StreamSummary
from tests.fakes.engine_events import event, summarise, typed

START = typed("message_start", message={"usage": {"input_tokens": 7, "output_tokens": 0}})
STOP = typed("message_stop")


def messaged(*events: bytes) -> StreamSummary:
    return summarise(*events, dialect=Dialect.MESSAGES)


def delta(**fields: Any) -> bytes:
    return typed("content_block_delta", index=0, delta=fields)


def ended(reason: str | None = "end_turn", **fields: Any) -> bytes:
    return typed("message_delta", delta={"stop_reason": reason}, **fields)


def test_a_whole_message_is_counted_and_timed() -> None:
    summary = messaged(
        START,
        typed("content_block_start", content_block={"type": "thinking", "thinking": ""}),
        delta(type="thinking_delta", thinking="abcd"),
        delta(type="signature_delta", signature="xyz"),
        typed("content_block_stop", index=0),
        delta(type="text_delta", text="efgh"),
        delta(type="text_delta", text=""),
        ended(usage={"input_tokens": 7, "output_tokens": 5}),
        STOP,
    )
    assert (summary.first_event, summary.first_token, summary.first_visible, summary.last_token) == (0, 2, 5, 5)
    assert (summary.window_start, summary.window_end, summary.chunks) == (0, 7, 2)
    assert (summary.prompt_tokens, summary.completion_tokens, summary.total_exactness) == (7, 5, Exactness.EXACT)
    # Messages do not count reasoning: the exact total is split by length.
    assert (summary.reasoning_tokens, summary.split_exactness) == (2, Exactness.ESTIMATED)
    assert summary.decode_tps == 4 / 7
    assert summary.flags == (Flag.ESTIMATED_SPLIT,)
    assert (summary.terminal, summary.done_marker, summary.finish_reasons) == (True, True, ("end_turn",))


def test_prompt_tokens_may_be_told_at_the_start_only() -> None:
    summary = messaged(START, delta(text="abcd"), ended(usage={"output_tokens": 5}), STOP)
    assert (summary.prompt_tokens, summary.completion_tokens) == (7, 5)


def test_the_zero_at_the_start_is_not_the_length_of_the_answer() -> None:
    summary = messaged(START, delta(text="abcdefgh"))
    assert (summary.prompt_tokens, summary.completion_tokens) == (7, 2)
    assert summary.total_exactness is Exactness.ESTIMATED


@pytest.mark.parametrize("message", [{}, None], ids=["no usage", "no message"])
def test_a_start_may_tell_nothing(message: dict[str, Any] | None) -> None:
    summary = messaged(typed("message_start", message=message), delta(text="abcd"), ended(), STOP)
    assert (summary.prompt_tokens, summary.terminal) == (None, True)


def test_tool_input_is_tokens_and_leaves_a_total_rate_only() -> None:
    summary = messaged(START, delta(partial_json='{"a"'), ended("tool_use", usage={"output_tokens": 9}), STOP)
    assert (summary.first_token, summary.first_visible) == (1, None)
    assert Flag.TOOL_CALLS in summary.flags
    assert (summary.decode_tps, summary.visible_tps, summary.terminal) == (4.0, None, True)


@pytest.mark.parametrize(
    "events,terminal",
    [
        ([START, ended(), STOP], True),
        ([START, ended()], False),
        ([START, ended(None), STOP], False),
        ([START, typed("message_delta"), STOP], False),
        ([START, STOP], False),
        ([START, ended(), typed("error", error={"type": "internal_error"}), STOP], False),
        ([typed("content_block_delta"), typed("ping"), STOP], False),
    ],
    ids=["whole", "no stop", "aborted", "no delta", "no reason", "error", "nothing in it"],
)
def test_only_a_reason_and_the_stop_make_a_message_finished(events: list[bytes], terminal: bool) -> None:
    assert messaged(*events).terminal is terminal


def test_errors_are_kept_without_their_message() -> None:
    nested = messaged(START, typed("error", error={"type": "overloaded_error", "message": "secret"}))
    assert nested.error == EngineError(type="overloaded_error")
    bare = messaged(START, typed("error", detail="secret"))
    assert bare.error == EngineError(type="error")
    assert "secret" not in repr((nested, bare))


def test_the_name_counts_where_the_data_has_no_type() -> None:
    assert messaged(START, event({"delta": {"text": "abc"}}, name="content_block_delta")).chunks == 1
