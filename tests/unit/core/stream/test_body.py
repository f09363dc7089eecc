"""Answers that come as one body: counts and ends, no rates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.stream.body import summarise_body
from gateway.core.stream.summary import (
    Dialect,
    EngineError,
    EngineMetrics,
    Exactness,
    Flag,
    RequestShape,
    StreamSummary,
)

ASKED = RequestShape(stream=False)
FRAMED = (Dialect.OPAQUE, Dialect.TRANSCRIPTION)


def summary_of(value: Any, dialect: Dialect = Dialect.CHAT, shape: RequestShape = ASKED) -> StreamSummary:
    return summarise_body(dialect, json.dumps(value).encode(), shape)


def completion(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"index": index, "finish_reason": "stop", **choice} for index, choice in enumerate(choices)]
    return {"choices": listed, "usage": {"prompt_tokens": 7, "completion_tokens": 10}, **more}


def test_a_chat_answer_is_counted() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 83, "completion_tokens_details": {"reasoning_tokens": 40}}
    message = {"content": "a" * 150, "reasoning": "b" * 150}
    summary = summary_of(completion({"message": message}, usage=usage, metrics={"mean_itl_ms": 5.0}))
    assert (summary.prompt_tokens, summary.completion_tokens) == (7, 83)
    assert (summary.reasoning_tokens, summary.content_tokens, summary.reasoning_share) == (40, 43, 40 / 83)
    assert (summary.total_exactness, summary.split_exactness) == (Exactness.EXACT, Exactness.EXACT)
    assert summary.engine == EngineMetrics(mean_itl_ms=5.0)
    assert (summary.terminal, summary.finish_reasons, summary.choices, summary.flags) == (True, ("stop",), 1, ())
    assert (summary.first_event, summary.decode_tps, summary.done_marker) == (None, None, False)


def test_reasoning_that_is_not_counted_is_split_off_by_length() -> None:
    summary = summary_of(completion({"message": {"content": "a" * 10, "reasoning_content": "b" * 30}}))
    assert (summary.reasoning_tokens, summary.split_exactness) == (8, Exactness.ESTIMATED)


def test_a_completions_answer_is_counted() -> None:
    summary = summary_of(
        completion({"text": "abc"}, {"text": "def"}), Dialect.COMPLETIONS, RequestShape(stream=False, n=2)
    )
    assert (summary.completion_tokens, summary.content_tokens, summary.terminal) == (10, None, True)
    assert summary.flags == (Flag.SEVERAL_CHOICES,)


def test_tool_calls_leave_a_total_only() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    summary = summary_of(
        completion({"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"})
    )
    assert (summary.flags, summary.content_tokens, summary.terminal) == ((Flag.TOOL_CALLS,), None, True)


@pytest.mark.parametrize(
    "value,terminal",
    [
        (completion({"message": {"content": "a"}}), True),
        (completion({"message": {"content": "a"}, "finish_reason": "abort"}), False),
        (completion({"message": {"content": "a"}, "finish_reason": None}), False),
        (completion({"message": None}), True),
        (completion(), False),
        ({"choices": None}, False),
        ({"error": {"message": "secret", "type": "NotFoundError", "code": 404}}, False),
        ({}, False),
    ],
    ids=["whole", "aborted", "no reason", "no message", "no choice", "null", "error", "empty"],
)
def test_a_chat_answer_is_finished_when_its_choices_are(value: Any, terminal: bool) -> None:
    assert summary_of(value).terminal is terminal


def test_a_choice_that_was_asked_for_is_missed() -> None:
    assert not summary_of(completion({"text": "a"}), Dialect.COMPLETIONS, RequestShape(stream=False, n=2)).terminal


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{", b'{"choices":7}', b"[" * 100_000])
@pytest.mark.parametrize("dialect", [d for d in Dialect if d not in FRAMED])
def test_what_cannot_be_read_is_not_finished(body: bytes, dialect: Dialect) -> None:
    summary = summarise_body(dialect, body, ASKED)
    if body != b'{"choices":7}' or dialect in {Dialect.CHAT, Dialect.COMPLETIONS}:
        assert summary == StreamSummary(bad_events=1, flags=(Flag.BAD_EVENTS,))
    assert not summary.terminal


def response(status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "status": status,
        "output": [
            {
                "type": "reasoning",
                "content": [{"type": "reasoning_text", "text": "b" * 40}],
                "summary": [{"text": "b"}],
            },
            {"type": "message", "content": [{"type": "output_text", "text": "a" * 40}]},
        ],
        "usage": {"input_tokens": 7, "output_tokens": 23, "output_tokens_details": {"reasoning_tokens": 10}},
        **more,
    }


def test_a_response_is_counted() -> None:
    summary = summary_of(response(metrics={"mean_itl_ms": 5.0}), Dialect.RESPONSES)
    assert (summary.prompt_tokens, summary.completion_tokens) == (7, 23)
    assert (summary.reasoning_tokens, summary.content_tokens) == (10, 13)
    assert (summary.finish_reasons, summary.terminal, summary.flags) == (("completed",), True, ())
    assert summary.engine == EngineMetrics(mean_itl_ms=5.0)


def test_a_response_with_a_function_call_has_a_total_only() -> None:
    call = {"type": "function_call", "arguments": '{"city":"Kyoto"}'}
    for item in (call, {"type": "web_search_call"}):
        summary = summary_of(response(output=[item], usage={"output_tokens": 23}), Dialect.RESPONSES)
        assert (summary.flags, summary.completion_tokens, summary.content_tokens) == ((Flag.TOOL_CALLS,), 23, None)


@pytest.mark.parametrize(
    "value,terminal",
    [
        (response("incomplete"), True),
        (response("queued", output=None, usage=None), True),
        (response("cancelled"), False),
        (response("failed", error={"code": "server_error"}), False),
        ({"output": []}, False),
    ],
    ids=["up to its limit", "in the background", "cancelled", "failed", "no status"],
)
def test_a_response_is_finished_by_its_status(value: Any, terminal: bool) -> None:
    assert summary_of(value, Dialect.RESPONSES).terminal is terminal


def message(**more: Any) -> dict[str, Any]:
    blocks = [{"type": "thinking", "thinking": "b" * 30}, {"type": "text", "text": "a" * 10}]
    return {
        "type": "message",
        "content": blocks,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 40},
        **more,
    }


def test_a_message_is_counted() -> None:
    summary = summary_of(message(stop_reason="max_tokens"), Dialect.MESSAGES)
    assert (summary.prompt_tokens, summary.completion_tokens) == (7, 40)
    assert (summary.reasoning_tokens, summary.split_exactness) == (30, Exactness.ESTIMATED)
    assert (summary.finish_reasons, summary.terminal, summary.flags) == (("max_tokens",), True, (Flag.ESTIMATED_SPLIT,))


def test_a_message_that_uses_a_tool_has_a_total_only() -> None:
    tool = {"type": "tool_use", "name": "f", "input": {"city": "Kyoto"}}
    summary = summary_of(message(content=[tool], stop_reason="tool_use"), Dialect.MESSAGES)
    assert (summary.flags, summary.content_tokens, summary.terminal) == ((Flag.TOOL_CALLS,), None, True)


def test_a_message_without_a_reason_or_with_an_error_is_not_finished() -> None:
    assert not summary_of(message(stop_reason=None), Dialect.MESSAGES).terminal
    failed = summary_of({"type": "error", "error": {"type": "NotFoundError", "message": "secret"}}, Dialect.MESSAGES)
    assert failed.error == EngineError(type="NotFoundError")
    assert not failed.terminal


# --- answers that say nothing of their end: vectors, scores, transcriptions, and what was stored before ------------


@pytest.mark.parametrize("dialect", FRAMED)
@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"text":"a","usage":{"type":"duration","seconds":3}}', b'{"error":null}']
)
def test_what_has_no_end_of_its_own_is_finished_when_it_can_be_read(body: bytes, dialect: Dialect) -> None:
    summary = summarise_body(dialect, body, ASKED)
    assert summary.terminal
    assert (summary.prompt_tokens, summary.completion_tokens, summary.decode_tps) == (None, None, None)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b'{"a":' + b"[" * 100_000, b'{"usage":'])
def test_and_not_when_it_cannot(body: bytes) -> None:
    summary = summarise_body(Dialect.OPAQUE, body, ASKED)
    assert (summary.terminal, summary.bad_events) == (False, 1)


def test_the_prompt_s_tokens_of_vectors_are_counted() -> None:
    body = b'{"data":[{"embedding":[0.5,1e-9]}],"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0}}'
    summary = summarise_body(Dialect.OPAQUE, body, ASKED)
    assert (summary.prompt_tokens, summary.completion_tokens, summary.terminal) == (7, None, True)


def test_an_error_in_it_is_no_good_end() -> None:
    summary = summarise_body(Dialect.OPAQUE, b'{"error":{"code":500,"message":"secret"}}', ASKED)
    assert (summary.terminal, summary.error) == (False, EngineError(code="500"))


def test_a_stored_answer_is_counted_when_it_is_made_and_not_again() -> None:
    body = b'{"id":"resp_1","status":"cancelled","error":{"code":"x"},"usage":{"input_tokens":7,"output_tokens":9}}'
    summary = summarise_body(Dialect.RESPONSES, body, RequestShape(stream=False, replay=True))
    assert (summary.prompt_tokens, summary.completion_tokens, summary.terminal) == (None, None, True)
    assert summary.flags == (Flag.REPLAYED,)
