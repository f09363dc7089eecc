"""What chat and completions events mean."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.stream.summary import Dialect, EngineError, EngineMetrics, Exactness, Flag, RequestShape
from tests.fakes.engine_events import DONE, chat, event, role, summarise, text, usage


def test_a_whole_stream_is_counted_and_timed() -> None:
    summary = summarise(
        role(),
        chat(reasoning="one "),
        chat(reasoning="two "),
        chat(content="three"),
        chat(content="four"),
        chat(finish="stop"),
        usage(5, reasoning=2),
        DONE,
    )
    assert (summary.first_event, summary.first_token, summary.first_visible, summary.last_token) == (0, 1, 3, 4)
    assert (summary.window_start, summary.window_end) == (0, 5)
    assert summary.silence_s == 93
    assert (summary.events, summary.chunks, summary.choices) == (8, 4, 1)
    assert (summary.prompt_tokens, summary.completion_tokens) == (7, 5)
    assert (summary.reasoning_tokens, summary.content_tokens, summary.reasoning_share) == (2, 3, 0.4)
    assert (summary.total_exactness, summary.split_exactness) == (Exactness.EXACT, Exactness.EXACT)
    assert (summary.decode_tps, summary.step_time_s) == (0.8, 1.25)
    assert summary.gap_max_s == 1.0
    assert (summary.finish_reasons, summary.done_marker, summary.terminal) == (("stop",), True, True)
    assert (summary.flags, summary.error, summary.bad_events) == ((), None, 0)


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "because"},
        {"reasoning_content": "because"},
        {"reasoning": "because", "reasoning_content": "because"},
    ],
    ids=["reasoning", "reasoning_content", "both names of one text"],
)
def test_reasoning_has_two_names(delta: dict[str, str]) -> None:
    summary = summarise(role(), chat(**delta), chat(content="so", finish="stop"), DONE)
    assert (summary.first_token, summary.first_visible) == (1, 2)
    # (7 + 2) bytes are 2 tokens, 7/9 of them reasoning.
    assert (summary.reasoning_tokens, summary.content_tokens) == (2, 0)


def test_a_delta_may_hold_both_channels() -> None:
    summary = summarise(
        role(), chat(reasoning="abcd", content="efgh"), chat(finish="stop"), usage(4, reasoning=2), DONE
    )
    assert summary.first_token == summary.first_visible == 1
    assert summary.chunks == 1
    assert (summary.reasoning_tokens, summary.content_tokens) == (2, 2)


def test_empty_and_null_deltas_are_no_tokens() -> None:
    summary = summarise(
        role(),
        chat(content=""),
        chat(content=None, reasoning=None),
        chat(),
        event({"choices": [{"index": 0, "delta": None}]}),
        event({"choices": [{"index": 0}]}),
        event({"choices": None}),
        event({}),
        chat(content="x", finish="stop"),
        DONE,
    )
    assert (summary.chunks, summary.first_token, summary.bad_events) == (1, 8, 0)


def test_an_empty_finish_reason_is_none() -> None:
    assert summarise(role(), chat(content="a", finish=""), DONE).finish_reasons == ()


def test_text_is_measured_in_utf8() -> None:
    assert summarise(role(), chat(content="語" * 40), DONE).completion_tokens == 30


def test_tool_arguments_are_tokens_and_leave_a_total_rate_only() -> None:
    call = [{"index": 0, "function": {"name": "f", "arguments": ""}}]
    summary = summarise(
        role(),
        chat(reasoning="hm"),
        chat(tool_calls=call),
        chat(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}, {"index": 1, "function": None}]),
        chat(finish="tool_calls"),
        usage(20, reasoning=3),
        DONE,
    )
    assert Flag.TOOL_CALLS in summary.flags
    assert (summary.first_token, summary.last_token, summary.first_visible) == (1, 3, None)
    assert (summary.completion_tokens, summary.reasoning_tokens, summary.content_tokens) == (20, 3, None)
    assert summary.decode_tps == 19 / 4
    assert (summary.reasoning_tps, summary.visible_tps, summary.effective_visible_tps) == (None, None, None)
    assert summary.terminal


def test_a_tool_call_without_arguments_is_a_tool_call() -> None:
    summary = summarise(role(), chat(tool_calls=[{"function": {"name": "f"}}]), chat(finish="tool_calls"), DONE)
    assert Flag.TOOL_CALLS in summary.flags


def test_choices_interleave_and_all_must_end() -> None:
    both = [
        role(0),
        role(1),
        chat(index=0, content="a"),
        chat(index=1, content="b"),
        chat(index=0, finish="stop"),
    ]
    assert not summarise(*both, DONE).terminal
    summary = summarise(*both, chat(index=1, finish="length"), usage(6, reasoning=0), DONE)
    assert summary.terminal
    assert (summary.window_start, summary.window_end, summary.choices) == (0, 5, 2)
    assert summary.finish_reasons == ("stop", "length")
    assert summary.decode_tps == (6 - 2) / 5
    assert (summary.step_time_s, summary.visible_tps, summary.flags) == (None, None, (Flag.SEVERAL_CHOICES,))


def test_several_choices_in_one_event_are_one_chunk() -> None:
    pair = event({"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]})
    assert summarise(pair, pair, DONE).chunks == 2


def test_a_choice_that_was_asked_for_and_never_came_is_missed() -> None:
    stream = [role(), chat(content="a", finish="stop"), DONE]
    assert summarise(*stream).terminal
    assert not summarise(*stream, shape=RequestShape(stream=True, n=2)).terminal


@pytest.mark.parametrize(
    "stream,terminal",
    [
        ([role(), chat(finish="stop"), DONE], True),
        ([role(), chat(finish="stop")], False),
        ([role(), chat(content="a"), DONE], False),
        ([role(), chat(finish="abort"), DONE], False),
        ([DONE], False),
        ([], False),
    ],
    ids=["whole", "no end marker", "no reason", "aborted", "the end marker alone", "nothing"],
)
def test_only_a_reason_and_the_end_marker_make_an_answer_finished(stream: list[bytes], terminal: bool) -> None:
    assert summarise(*stream).terminal is terminal


def test_an_error_in_the_stream_is_kept_without_its_message() -> None:
    error = event({"error": {"message": "secret", "type": "InternalServerError", "param": None, "code": 500}})
    summary = summarise(role(), chat(content="a", finish="stop"), error, DONE)
    assert summary.error == EngineError(code="500", type="InternalServerError")
    assert not summary.terminal
    assert "secret" not in repr(summary)


def test_continuous_usage_counts_by_its_last_event() -> None:
    def counts(completion: int, reasoning: int) -> dict[str, Any]:
        details = {"reasoning_tokens": reasoning}
        return {"prompt_tokens": 7, "completion_tokens": completion, "completion_tokens_details": details}

    begun = [
        event({"choices": [{"index": 0, "delta": {"role": "assistant"}}], "usage": counts(0, 0)}),
        chat(reasoning="abcd", usage=counts(2, 1)),
        chat(content="efgh", usage=counts(4, 1)),
    ]
    cut = summarise(*begun)
    assert (cut.completion_tokens, cut.total_exactness) == (4, Exactness.EXACT)
    assert (cut.reasoning_tokens, cut.content_tokens) == (1, 3)
    assert Flag.NO_FINISH_WINDOW in cut.flags
    whole = summarise(*begun, chat(finish="stop", usage=counts(5, 1)), usage(5, reasoning=1), DONE)
    assert (whole.completion_tokens, whole.total_exactness) == (5, Exactness.EXACT)


def test_usage_of_one_choice_of_several_is_no_total() -> None:
    one = {"prompt_tokens": 7, "completion_tokens": 1}
    summary = summarise(role(0), role(1), chat(index=0, content="abcd"), chat(index=1, content="efgh", usage=one))
    assert (summary.completion_tokens, summary.total_exactness) == (2, Exactness.ESTIMATED)
    assert summary.prompt_tokens == 7


def test_usage_before_the_last_text_is_no_total() -> None:
    summary = summarise(role(), chat(content="abcd"), usage(1), chat(content="x" * 36), DONE)
    assert (summary.completion_tokens, summary.total_exactness) == (10, Exactness.ESTIMATED)


def test_the_engine_s_own_metrics_are_kept() -> None:
    metrics = {"mean_itl_ms": 1000.0, "speculative_decoding": {"mean_acceptance_length": 2.0}}
    summary = summarise(role(), chat(content="ab"), chat(content="cd", finish="stop"), usage(3, metrics=metrics), DONE)
    assert summary.engine == EngineMetrics(mean_itl_ms=1000.0, mean_acceptance_length=2.0)
    assert (summary.decode_tps, summary.step_time_s) == (1.0, 2.0)


def test_completions_have_text() -> None:
    summary = summarise(
        text("one"),
        text(" two"),
        text(""),
        text(" three", finish="length"),
        usage(4, metrics={"mean_itl_ms": 5.0}),
        DONE,
        dialect=Dialect.COMPLETIONS,
    )
    assert (summary.first_token, summary.first_visible, summary.last_token) == (0, 0, 3)
    assert (summary.window_start, summary.window_end, summary.chunks) == (0, 3, 3)
    assert (summary.completion_tokens, summary.reasoning_tokens, summary.content_tokens) == (4, 0, 4)
    assert (summary.decode_tps, summary.visible_tps) == (1.0, 1.0)
    assert summary.engine == EngineMetrics(mean_itl_ms=5.0)
    assert (summary.terminal, summary.flags) == (True, ())


def test_completions_errors_and_choices_are_read() -> None:
    failed = event({"error": {"code": 500}})
    summary = summarise(text("a"), text("b", index=1), failed, DONE, dialect=Dialect.COMPLETIONS)
    assert (summary.error, summary.choices, summary.terminal) == (EngineError(code="500"), 2, False)
