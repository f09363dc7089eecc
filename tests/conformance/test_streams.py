"""What was found about streams, one finding a check, asked of the recordings, the simulator and a real engine."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from tests.conformance.servers import Lender
from tests.conformance.targets import Target, exchange
from tests.fakes.recordings import RecordedEnd, Recording

CHAT_STREAMS = (
    "chat-stream-plain", "chat-stream-include-usage", "chat-stream-continuous-usage", "chat-stream-token-ids",
    "chat-stream-n2", "chat-stream-tool", "chat-stream-length", "chat-stream-emoji", "chat-stream-request-id",
)  # fmt: skip
STREAMS = (*CHAT_STREAMS, "completions-stream")


def events_of(recording: Recording) -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(rb"^data: (\{.*)$", recording.body, re.MULTILINE)]


def choices_of(recording: Recording) -> list[dict[str, Any]]:
    return [choice for event in events_of(recording) for choice in event["choices"]]


def deltas_of(recording: Recording) -> list[dict[str, Any]]:
    return [choice["delta"] for choice in choices_of(recording)]


@pytest.mark.parametrize("name", STREAMS)
def test_the_head_says_event_stream_and_chunked_and_no_length(target: Target, name: str) -> None:
    answer = target.exchange(name)
    lines = answer.head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 200 OK"
    assert [line.partition(":")[0] for line in lines[1:-2]] == [
        "date", "server", "content-type", "vary", "transfer-encoding"
    ]  # fmt: skip
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["server"] == "uvicorn"


def head_comes_alone(target: Target, name: str) -> bool:
    """Whether a read had the head and nothing else; of some tries, since a busy client may come too late to see it."""
    return any(target.exchange(name).reads[0].data.endswith(b"\r\n\r\n") for _ in range(10))


def test_the_head_comes_at_once_and_alone(target: Target) -> None:
    assert head_comes_alone(target, "chat-stream-include-usage")


@pytest.mark.parametrize("name", STREAMS)
def test_every_event_is_one_http_chunk(target: Target, name: str) -> None:
    body = target.exchange(name).raw.partition(b"\r\n\r\n")[2]
    chunks = re.findall(rb"([0-9a-f]+)\r\n(data: [^\n]*\n\n)\r\n", body)
    assert [int(size, 16) for size, _ in chunks] == [len(data) for _, data in chunks]
    assert b"".join(size + b"\r\n" + data + b"\r\n" for size, data in chunks) + b"0\r\n\r\n" == body


@pytest.mark.parametrize("name", CHAT_STREAMS)
def test_the_first_event_has_the_role_and_empty_content(target: Target, name: str) -> None:
    first = events_of(target.exchange(name))[0]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert list(first)[-2:] == ["prompt_token_ids", "prompt_text"]


def test_the_keys_of_an_event_stand_in_the_recorded_order(target: Target) -> None:
    events = events_of(target.exchange("chat-stream-include-usage"))
    assert list(events[1]) == ["id", "object", "created", "model", "choices"]
    assert list(events[1]["choices"][0]) == ["index", "delta", "logprobs", "finish_reason", "token_ids"]
    assert list(events[-2]["choices"][0]) == [
        "index", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids"
    ]  # fmt: skip
    assert list(events[-1]) == ["id", "object", "created", "model", "choices", "usage", "system_fingerprint"]


def test_reasoning_has_its_own_field_and_no_other_name(target: Target) -> None:
    deltas = deltas_of(target.exchange("chat-stream-include-usage"))
    assert any("reasoning" in delta for delta in deltas)
    assert not any("reasoning_content" in delta for delta in deltas)
    assert all("reasoning" not in delta for delta in deltas if "content" in delta)


def test_without_reasoning_nothing_is_sent_while_it_thinks_and_content_names_it_null(target: Target) -> None:
    answer = target.exchange("chat-stream-no-reasoning")
    events = events_of(answer)
    texts = [delta for delta in deltas_of(answer)[1:] if delta]
    assert texts
    assert all(delta["reasoning"] is None for delta in texts)
    usage = events[-1]["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] > 0
    assert len(texts) < usage["completion_tokens"] - usage["completion_tokens_details"]["reasoning_tokens"]


def test_markers_make_no_event(target: Target) -> None:
    body = target.exchange("chat-stream-include-usage").body
    assert b"think>" not in body
    assert body.count(b'"delta":{}') == 1  # that of the finish


@pytest.mark.parametrize("name", ["chat-stream-token-ids", "chat-stream-logprobs"])
def test_markers_make_an_empty_delta_where_ids_or_logprobs_are_asked_for(target: Target, name: str) -> None:
    second = choices_of(target.exchange(name))[1]
    assert second["delta"] == {}
    assert second["finish_reason"] is None
    assert second["token_ids"] or second["logprobs"]["content"][0]["token"] == "<think>"


def test_a_character_of_several_tokens_comes_whole_in_one_event(target: Target) -> None:
    answer = target.exchange("chat-stream-emoji")
    events = events_of(answer)
    assert "\ufffd" not in answer.body.decode()
    assert len(events) < events[-1]["usage"]["completion_tokens"]


def test_one_event_a_token_at_interval_one(target: Target) -> None:
    """Of some tries: a server that gets no processor for a moment has more to say after it."""

    def counts() -> set[int]:
        answer = target.exchange("chat-stream-token-ids", max_tokens=40)
        return {len(choice["token_ids"] or ()) for choice in choices_of(answer)[1:]}

    assert any(counts() == {1} for _ in range(10))


def test_four_tokens_an_event_at_interval_four_and_the_first_alone(target: Target) -> None:
    answer = target.exchange("interval4-chat-token-ids")
    counts = [len(choice["token_ids"]) for choice in choices_of(answer)[1:]]
    assert counts[0] == 1
    assert set(counts[1:-1]) == {4}
    assert sum(counts) == events_of(answer)[-1]["usage"]["completion_tokens"]


@pytest.mark.parametrize("name", ["interval4-chat-count", "interval4-completions"])
def test_events_are_fewer_than_tokens_at_interval_four(target: Target, name: str) -> None:
    events = events_of(target.exchange(name))
    assert len(events) < events[-1]["usage"]["completion_tokens"] / 2


def test_the_end_is_finish_usage_done_and_the_terminator(target: Target) -> None:
    answer = target.exchange("chat-stream-include-usage")
    events = events_of(answer)
    assert events[-2]["choices"][0]["delta"] == {}
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["choices"] == []
    assert answer.body.endswith(b"}\n\ndata: [DONE]\n\n")
    assert answer.raw.endswith(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    assert answer.end is RecordedEnd.COMPLETE


def test_the_last_text_and_the_finish_share_an_event_at_the_limit(target: Target) -> None:
    answer = target.exchange("chat-stream-length")
    last = choices_of(answer)[-1]
    assert last["finish_reason"] == "length"
    assert last["delta"]["reasoning"]


@pytest.mark.parametrize("name", ["chat-stream-include-usage", "completions-stream"])
def test_only_the_usage_event_has_the_fingerprint(target: Target, name: str) -> None:
    events = events_of(target.exchange(name))
    assert ["system_fingerprint" in event for event in events] == [False] * (len(events) - 1) + [True]


def test_without_usage_the_finish_event_has_the_fingerprint(target: Target) -> None:
    events = events_of(target.exchange("chat-stream-plain"))
    assert ["system_fingerprint" in event for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert not any("usage" in event for event in events)


def test_chat_usage_counts_reasoning_and_completions_usage_does_not(target: Target) -> None:
    chat = events_of(target.exchange("chat-stream-include-usage"))[-1]["usage"]
    assert 0 < chat["completion_tokens_details"]["reasoning_tokens"] < chat["completion_tokens"]
    assert chat["total_tokens"] == chat["prompt_tokens"] + chat["completion_tokens"]
    completions = events_of(target.exchange("completions-stream"))[-1]["usage"]
    assert list(completions) == ["prompt_tokens", "total_tokens", "completion_tokens"]


def test_without_a_parser_usage_has_no_details_and_the_marker_gives_empty_content(target: Target) -> None:
    answer = target.exchange("noparser-chat-length")
    assert deltas_of(answer)[1] == {"content": ""}
    assert "completion_tokens_details" not in events_of(answer)[-1]["usage"]
    assert all("reasoning" not in delta for delta in deltas_of(answer))


def test_continuous_usage_is_in_every_event_and_zero_in_the_first(target: Target) -> None:
    events = events_of(target.exchange("chat-stream-continuous-usage"))
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts[0] == 0
    assert all(earlier <= later for earlier, later in pairwise(counts))
    assert counts[1] == 2  # the marker and the first text
    assert list(events[0])[-3:] == ["usage", "prompt_token_ids", "prompt_text"]


def test_prompt_ids_are_in_the_role_event_and_ids_in_each_choice(target: Target) -> None:
    events = events_of(target.exchange("chat-stream-token-ids"))
    assert len(events[0]["prompt_token_ids"]) == events[-1]["usage"]["prompt_tokens"]
    assert "token_ids" not in events[0]["choices"][0]
    ids = sum(len(choice["token_ids"]) for event in events[1:] for choice in event["choices"])
    assert ids == events[-1]["usage"]["completion_tokens"]


def test_two_choices_interleave_and_share_one_usage_event(target: Target) -> None:
    answer = target.exchange("chat-stream-n2")
    indexes = [choice["index"] for choice in choices_of(answer)]
    assert sum(earlier != later for earlier, later in pairwise(indexes)) > 4
    assert sum("usage" in event for event in events_of(answer)) == 1
    finishes = [choice["index"] for choice in choices_of(answer) if choice["finish_reason"]]
    assert sorted(finishes) == [0, 1]


def test_the_request_id_becomes_part_of_the_answers_id(target: Target) -> None:
    answer = target.exchange("chat-stream-request-id")
    assert {event["id"] for event in events_of(answer)} == {"chatcmpl-abc-123"}
    assert "x-request-id" not in answer.headers


def test_gzip_is_not_given(target: Target) -> None:
    answer = target.exchange("chat-stream-gzip-asked")
    assert "content-encoding" not in answer.headers
    assert answer.body.startswith(b"data: {")


def test_a_tool_call_begins_with_its_name_and_goes_on_with_arguments(target: Target) -> None:
    answer = target.exchange("chat-stream-tool")
    calls = [delta["tool_calls"][0] for delta in deltas_of(answer) if "tool_calls" in delta]
    assert list(calls[0]) == ["id", "type", "index", "function"]
    assert calls[0]["function"] == {"name": "get_weather"}
    assert calls[0]["id"].startswith("chatcmpl-tool-")
    assert all(list(call) == ["index", "function"] for call in calls[1:])
    assert "city" in json.loads("".join(call["function"]["arguments"] for call in calls[1:]))
    assert choices_of(answer)[-1]["finish_reason"] == "tool_calls"
    assert len(calls) < events_of(answer)[-1]["usage"]["completion_tokens"]


@pytest.mark.parametrize("name", ["metrics-chat-stream", "metrics-completions-stream"])
def test_request_metrics_are_in_the_usage_event(target: Target, name: str) -> None:
    last = events_of(target.exchange(name))[-1]
    assert list(last)[-1] == "metrics"
    assert list(last["metrics"]) == [
        "time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second"
    ]  # fmt: skip
    tokens, metrics = last["usage"]["completion_tokens"], last["metrics"]
    span_ms = metrics["time_to_first_token_ms"] + metrics["generation_time_ms"]
    assert metrics["tokens_per_second"] == pytest.approx(1000 * tokens / span_ms, rel=1e-6)
    assert metrics["mean_itl_ms"] == pytest.approx(metrics["generation_time_ms"] / (tokens - 1), rel=1e-6)


def test_request_metrics_are_not_in_a_stream_that_did_not_ask_for_usage(target: Target) -> None:
    assert b'"metrics"' not in target.exchange("metrics-chat-stream-no-usage").body


def test_a_queued_request_has_its_head_at_once_and_its_first_event_later_recorded(recorded: Target) -> None:
    """It waited behind another one; test_serving.py makes others wait."""
    answer = recorded.exchange("queued-chat")
    assert answer.reads[0].at_s < 0.1
    assert answer.reads[1].at_s > 1


@pytest.mark.parametrize("name", ["chat-stream-include-usage", "completions-stream"])
def test_finish_usage_and_done_come_in_one_read(target: Target, name: str) -> None:
    """Often, not always: one of some tries will do.  A reader that is always there in time gets them one by one."""
    if target.name == "real":
        last = b"".join(read.data for read in target.exchange(name).reads[-4:])  # the terminator may be one
        assert last.count(b"data: ") >= 3, "nothing comes in between"
        return
    assert any(target.exchange(name).reads[-1].data.count(b"data: ") >= 3 for _ in range(10))


def test_the_first_request_with_logprobs_has_its_head_at_once(target: Target) -> None:
    """What comes after it took 19 s when it was recorded, and less than 2 s of the same version since."""
    assert head_comes_alone(target, "chat-stream-logprobs")


def test_reasoning_in_a_request_is_taken_by_both_names(servers: Lender) -> None:
    for field in ("reasoning", "reasoning_content"):
        said = {"role": "assistant", "content": "hi", field: "a thought"}
        messages = [{"role": "user", "content": "hello"}, said, {"role": "user", "content": "and now?"}]
        answer = exchange(servers.shared().port, "chat-nonstream", messages=messages, max_tokens=4)
        assert answer.status == 200, answer.body


def test_the_bytes_of_a_split_character_make_empty_deltas_where_ids_are_asked_for(servers: Lender) -> None:
    answer = exchange(servers.shared().port, "chat-stream-emoji", return_token_ids=True)
    choices = choices_of(answer)[1:]
    silent = [choice for choice in choices if not choice["delta"] and not choice["finish_reason"]]
    assert len(silent) > 5
    assert all(choice["token_ids"] for choice in silent)
    assert sum(len(choice["token_ids"]) for choice in choices) == events_of(answer)[-1]["usage"]["completion_tokens"]


def test_request_metrics_are_not_in_a_stream_of_two_choices(servers: Lender) -> None:
    answer = exchange(servers.shared("metrics").port, "metrics-chat-stream", n=2)
    assert events_of(answer)[-1]["usage"]
    assert b'"metrics":{' not in answer.body
