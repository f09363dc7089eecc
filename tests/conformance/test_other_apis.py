"""What was found about the Responses and the Messages API, one finding a check; asked of every target."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from gateway.core.stream.summary import Flag
from gateway.core.stream.tap import Tap
from tests.conformance.conftest import Servers
from tests.conformance.named_events import data_of, named_events, order, shape, shapes
from tests.conformance.targets import Target
from tests.fakes.recordings import RecordedEnd, Recording

RESPONSES = (
    "responses-stream", "responses-stream-tool", "responses-stream-length", "responses-stream-no-reasoning",
    "responses-stream-no-reasoning-length", "responses-stream-logprobs", "responses-stream-empty",
    "responses-stream-effort-none", "interval4-responses-stream", "interval100-responses-tool",
    "noparser-responses-stream", "metrics-responses-stream",
)  # fmt: skip
MESSAGES = (
    "messages-stream", "messages-stream-tool", "messages-stream-length", "messages-stream-thinking-disabled",
    "messages-stream-empty", "messages-stream-request-id", "interval4-messages-stream-tool",
    "interval100-messages-tool", "noparser-messages-stream", "metrics-messages-stream",
)  # fmt: skip
# Where the recorded model says what the simulated one does not: white space between its thought and a call, or
# content after so few tokens.
ODD_ORDER = {"responses-stream-logprobs", "responses-stream-tool", "interval100-responses-tool", "messages-stream-tool",
             "interval4-messages-stream-tool", "interval100-messages-tool"}  # fmt: skip
WHOLE = (
    "responses-nonstream", "responses-nonstream-tool", "responses-nonstream-length", "responses-nonstream-no-reasoning",
    "responses-nonstream-echo", "responses-nonstream-text", "responses-nonstream-empty",
    "metrics-responses-nonstream", "noparser-responses-nonstream", "responses-missing-model", "messages-nonstream",
    "messages-nonstream-tool", "messages-nonstream-length", "messages-nonstream-thinking-disabled",
    "messages-nonstream-empty", "metrics-messages-nonstream", "noparser-messages-nonstream", "messages-count-tokens",
    "messages-count-tokens-tools", "detokenize", "detokenize-empty", "detokenize-missing-model",
)  # fmt: skip
ERRORS = (
    "responses-get-unknown", "responses-cancel-unknown", "responses-get-plain", "responses-post-id",
    "responses-get-cancel", "error-responses-bad-model", "responses-error-background",
    "responses-error-background-no-store", "responses-error-bad-json", "responses-error-bad-model-stream",
    "responses-error-content-type", "responses-error-empty-body", "responses-error-empty-list-input",
    "responses-error-image", "responses-error-include", "responses-error-max-float", "responses-error-max-negative",
    "responses-error-max-string", "responses-error-max-too-big", "responses-error-max-zero",
    "responses-error-metadata", "responses-error-missing-input", "responses-error-not-object",
    "responses-error-previous", "responses-error-prompt", "responses-error-stream-string",
    "responses-error-temperature", "responses-error-too-long", "responses-error-tool-named",
    "responses-error-tool-required", "responses-error-top-logprobs", "responses-error-wrong-type-input",
    "messages-get", "messages-error-bad-model", "messages-error-bad-json", "messages-error-bad-model-stream",
    "messages-error-content-missing", "messages-error-content-type", "messages-error-count-bad-model",
    "messages-error-count-empty-messages", "messages-error-count-missing-messages", "messages-error-count-too-long",
    "messages-error-empty-body", "messages-error-empty-messages", "messages-error-empty-model",
    "messages-error-image", "messages-error-max-float", "messages-error-max-string", "messages-error-max-too-big",
    "messages-error-max-zero", "messages-error-messages-element", "messages-error-missing-max-tokens",
    "messages-error-missing-messages", "messages-error-missing-model", "messages-error-not-object",
    "messages-error-role", "messages-error-stream-string", "messages-error-temperature",
    "messages-error-thinking-budget", "messages-error-thinking-budget-small", "messages-error-too-long",
    "messages-error-tool-choice-no-name", "messages-error-tool-no-schema", "messages-error-two-faults",
    "messages-error-wrong-type-messages", "detokenize-error-bad-json", "detokenize-error-bad-model",
    "detokenize-error-missing-tokens", "detokenize-error-negative", "detokenize-error-wrong-element",
    "detokenize-error-wrong-type", "tokenize-error-bad-model", "tokenize-error-missing",
)  # fmt: skip


# Answers that were recorded to be cut, or that a few tokens are enough for.
CUT = re.compile("-length|-empty|-effort-none|noparser-|-echo|-text|-missing-model|-request-id|count-tokens|detokenize")


def asked(target: Target, name: str) -> Recording:
    """The answer; the simulated model says more than the recorded one, so it gets the room to come to its end."""
    if target.name != "simulator" or CUT.search(name):
        return target.exchange(name)
    changes: dict[str, Any] = {"max_tokens": 1900, "max_output_tokens": 1900}
    if name.startswith("metrics-"):  # it would count for ever
        changes |= {"input": "hello there", "messages": [{"role": "user", "content": "hello there"}]}
    return target.exchange(name, **changes)


def stopped(target: Target, name: str) -> tuple[str, Recording]:
    """The answer that ends with a stop string, and the string: the simulated model counts in other tokens."""
    if target.name != "simulator":
        return " 7 ", target.exchange(name)
    changes = {"stop": ["1 2"], "stop_sequences": ["1 2"], "chat_template_kwargs": {"enable_thinking": False}}
    return "1 2", target.exchange(name, **changes)


@pytest.mark.parametrize("name", [*RESPONSES, *MESSAGES])
def test_every_event_is_named_and_one_http_chunk_and_there_is_no_done(target: Target, name: str) -> None:
    answer = asked(target, name)
    body = answer.raw.partition(b"\r\n\r\n")[2]
    chunks = re.findall(rb"([0-9a-f]+)\r\n(event: [^\n]+\ndata: [^\n]*\n\n)\r\n", body)
    assert [int(size, 16) for size, _ in chunks] == [len(data) for _, data in chunks]
    assert b"".join(size + b"\r\n" + data + b"\r\n" for size, data in chunks) + b"0\r\n\r\n" == body
    assert all(data["type"] == kind for kind, data in named_events(answer))
    assert b"[DONE]" not in answer.body
    assert answer.end is RecordedEnd.COMPLETE
    assert list(answer.headers) == ["date", "server", "content-type", "vary", "transfer-encoding"]


@pytest.mark.parametrize("name", [name for name in (*RESPONSES, *MESSAGES) if name not in ODD_ORDER])
def test_the_events_come_in_the_recorded_order(target: Target, recorded: Target, name: str) -> None:
    assert order(named_events(asked(target, name))) == order(named_events(recorded.exchange(name)))


@pytest.mark.parametrize("name", [*RESPONSES, *MESSAGES])
def test_an_event_has_the_recorded_keys_and_kinds_of_values(target: Target, recorded: Target, name: str) -> None:
    ours, theirs = shapes(named_events(asked(target, name))), shapes(named_events(recorded.exchange(name)))
    odd = {kind for kind in theirs if kind not in ours}
    assert set(ours) <= set(theirs)
    assert not odd or name in ODD_ORDER
    for kind, found in ours.items():
        if kind != "response.completed" or name not in ODD_ORDER:
            assert found == theirs[kind], kind


@pytest.mark.parametrize("name", RESPONSES)
def test_events_of_a_response_are_numbered(target: Target, name: str) -> None:
    events = named_events(asked(target, name))
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))


@pytest.mark.parametrize("name", RESPONSES)
def test_the_items_of_a_response_are_what_its_deltas_say(target: Target, name: str) -> None:
    events = named_events(asked(target, name))
    output = data_of(events, "response.completed")[0]["response"]["output"]
    assert [data["item"] for data in data_of(events, "response.output_item.done")] == output
    for place, item in enumerate(output):
        here = [(kind, data) for kind, data in events if data.get("output_index") == place]
        said = "".join(data["delta"] for kind, data in here if kind.endswith(".delta"))
        added = data_of(here, "response.output_item.added")[0]["item"]
        assert added["id"] == item["id"]
        assert {data["item_id"] for _, data in here if "item_id" in data} == {item["id"]}
        assert said == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])


@pytest.mark.parametrize("name", ["responses-stream", "responses-stream-length", "noparser-responses-stream"])
def test_usage_is_in_the_completed_event_alone_and_counts_reasoning(target: Target, name: str) -> None:
    events = named_events(asked(target, name))
    usages = [data["response"]["usage"] for _, data in events if "response" in data]
    assert usages[:-1] == [None, None]
    assert usages[-1]["total_tokens"] == usages[-1]["input_tokens"] + usages[-1]["output_tokens"]
    reasoning = usages[-1]["output_tokens_details"]["reasoning_tokens"]
    assert (0 < reasoning < usages[-1]["output_tokens"]) == (not name.startswith("noparser"))


@pytest.mark.parametrize("name", ["responses-stream-length", "responses-stream-empty", "responses-nonstream-length"])
def test_a_response_that_was_cut_is_incomplete_but_its_last_event_is_completed(target: Target, name: str) -> None:
    answer = asked(target, name)
    if "stream-" in name and "nonstream" not in name:
        response = named_events(answer)[-1][1]["response"]
        assert named_events(answer)[-1][0] == "response.completed"
    else:
        response = json.loads(answer.body)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_without_reasoning_a_response_has_no_reasoning_item_but_counts_its_tokens(target: Target) -> None:
    events = named_events(asked(target, "responses-stream-no-reasoning"))
    completed = events[-1][1]["response"]
    assert {item["type"] for item in completed["output"]} == {"message"}
    assert completed["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert not any("reasoning_text" in kind for kind, _ in events)


def test_the_clients_request_id_is_not_the_id_of_a_response(target: Target) -> None:
    assert named_events(target.exchange("responses-stream-request-id"))[0][1]["response"]["id"].startswith("resp_")


def test_a_stop_string_does_not_show_in_a_response_and_ends_it_as_completed(target: Target) -> None:
    stop, answer = stopped(target, "responses-stream-stop")
    response = named_events(answer)[-1][1]["response"]
    assert response["status"] == "completed"
    assert response["output"][-1]["type"] == "message"
    assert stop not in response["output"][-1]["content"][0]["text"]


def test_the_logprobs_of_a_delta_are_brief_and_those_of_the_item_have_bytes(target: Target) -> None:
    events = named_events(asked(target, "responses-stream-logprobs"))
    delta = data_of(events, "response.output_text.delta")[0]
    assert list(delta["logprobs"][0]) == ["token", "logprob", "top_logprobs"]
    item = data_of(events, "response.output_item.done")[-1]["item"]
    assert list(item["content"][0]["logprobs"][0]) == ["token", "bytes", "logprob", "top_logprobs"]
    whole = json.loads(asked(target, "responses-nonstream-logprobs").body)
    assert shape(whole["output"][-1]) == shape(item)
    # They are those of all tokens, the thought's too, where in a stream they are those of the text.
    assert len(whole["output"][-1]["content"][0]["logprobs"]) == whole["usage"]["output_tokens"]


@pytest.mark.parametrize("name", ["responses-stream-tool", "interval100-responses-tool"])
def test_a_function_call_is_an_item_whose_arguments_are_json(target: Target, name: str) -> None:
    events = named_events(asked(target, name))
    call = data_of(events, "response.completed")[0]["response"]["output"][-1]
    assert (call["type"], call["name"], call["status"]) == ("function_call", "get_weather", "completed")
    assert call["call_id"].startswith("chatcmpl-tool-")
    assert "city" in json.loads(call["arguments"])
    assert order(events)[-5:] == [
        "response.output_item.added", "response.function_call_arguments.delta",
        "response.function_call_arguments.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["responses-stream", "metrics-responses-stream", "messages-stream", "metrics-messages-stream"]
)
def test_request_metrics_are_in_the_completed_event_of_responses_and_never_in_messages(
    target: Target, name: str
) -> None:
    body = asked(target, name).body
    assert (b'"metrics":{' in body) == (name == "metrics-responses-stream")


@pytest.mark.parametrize("name", MESSAGES)
def test_blocks_of_a_message_are_numbered_and_begin_and_end_in_turn(target: Target, name: str) -> None:
    events = named_events(asked(target, name))
    edges = [(kind, data["index"]) for kind, data in events if kind in {"content_block_start", "content_block_stop"}]
    count = len(edges) // 2
    assert edges == [(kind, at) for at in range(count) for kind in ("content_block_start", "content_block_stop")]
    assert order(events)[0] == "message_start"
    assert order(events)[-2:] == ["message_delta", "message_stop"]


def test_a_thinking_block_ends_with_a_signature(target: Target) -> None:
    events = named_events(asked(target, "messages-stream"))
    deltas = [data["delta"] for data in data_of(events, "content_block_delta") if data["index"] == 0]
    assert {delta["type"] for delta in deltas[:-1]} == {"thinking_delta"}
    assert deltas[-1]["type"] == "signature_delta"
    assert re.fullmatch("[0-9a-f]{32}", deltas[-1]["signature"])


def test_the_output_tokens_of_a_message_are_zero_at_first_and_all_at_last(target: Target) -> None:
    events = named_events(asked(target, "messages-stream"))
    first, last = events[0][1]["message"]["usage"], data_of(events, "message_delta")[0]["usage"]
    assert first == {"input_tokens": last["input_tokens"], "output_tokens": 0}
    assert last["output_tokens"] >= len(data_of(events, "content_block_delta")) - 1  # the signature is no token


STOP_REASONS = {
    "messages-stream": "end_turn", "messages-nonstream": "end_turn", "messages-stream-length": "max_tokens",
    "messages-nonstream-length": "max_tokens", "messages-stream-tool": "tool_use",
    "messages-nonstream-tool": "tool_use", "messages-stream-tool-length": "max_tokens",
}  # fmt: skip


@pytest.mark.parametrize("name", STOP_REASONS)
def test_a_message_tells_why_it_ended(target: Target, name: str) -> None:
    answer = asked(target, name)
    told = data_of(named_events(answer), "message_delta")[0]["delta"] if answer.is_event_stream else None
    assert (told or json.loads(answer.body))["stop_reason"] == STOP_REASONS[name]
    if told:
        assert told["stop_sequence"] is None


@pytest.mark.parametrize("name", ["messages-stream-stop", "messages-nonstream-stop"])
def test_a_message_names_the_stop_sequence_that_ended_it(target: Target, name: str) -> None:
    stop, answer = stopped(target, name)
    told = data_of(named_events(answer), "message_delta")[0]["delta"] if answer.is_event_stream else None
    told = told or json.loads(answer.body)
    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", stop)


@pytest.mark.parametrize("name", ["messages-stream-tool", "interval4-messages-stream-tool"])
def test_a_tool_use_block_begins_with_empty_input_and_its_deltas_are_json(target: Target, name: str) -> None:
    events = named_events(asked(target, name))
    block = data_of(events, "content_block_start")[-1]
    assert list(block["content_block"]) == ["type", "id", "name", "input"]
    assert (block["content_block"]["name"], block["content_block"]["input"]) == ("get_weather", {})
    deltas = [data["delta"] for data in data_of(events, "content_block_delta") if data["index"] == block["index"]]
    assert {delta["type"] for delta in deltas} == {"input_json_delta"}
    assert "city" in json.loads("".join(delta["partial_json"] for delta in deltas))


def test_the_request_id_becomes_part_of_a_messages_id(target: Target) -> None:
    events = named_events(target.exchange("messages-stream-request-id"))
    assert events[0][1]["message"]["id"] == "chatcmpl-abc-123"


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_body_has_the_recorded_keys_and_kinds_of_values(target: Target, recorded: Target, name: str) -> None:
    answer = asked(target, name)
    assert answer.status == 200
    assert shape(json.loads(answer.body)) == shape(json.loads(recorded.exchange(name).body))
    assert list(answer.headers) == list(recorded.exchange(name).headers)


@pytest.mark.parametrize(
    "name", ["responses-nonstream-tool-length", "messages-nonstream-tool-length", "chat-nonstream-tool-length"]
)
def test_a_call_that_was_cut_stays_text_in_a_whole_body(target: Target, name: str) -> None:
    limit = 73
    if target.name == "simulator":  # whose call is elsewhere: let it think not at all, and cut it there
        limit = 12
    thinks = {"chat_template_kwargs": {"enable_thinking": target.name != "simulator"}}
    body = target.exchange(name, max_tokens=limit, max_output_tokens=limit, **thinks).body.decode()
    assert "<tool_call>" in body
    assert not re.search('"tool_calls"|"tool_use"|"function_call",', body)


def test_calls_that_are_merged_have_their_name_and_arguments_in_one_event(target: Target) -> None:
    events = re.findall(rb"^data: (\{.*)$", target.exchange("interval100-chat-tool").body, re.MULTILINE)
    calls = [json.loads(event)["choices"][0]["delta"]["tool_calls"] for event in events if b'tool_calls":[' in event]
    assert [list(call["function"]) for event in calls for call in event] == [["name"], ["arguments"]]
    assert len(calls) == 1
    assert "city" in json.loads(calls[0][1]["function"]["arguments"])


@pytest.mark.parametrize(
    "name", ["responses-stream", "responses-stream-tool", "messages-stream", "messages-stream-tool"]
)
def test_the_tap_counts_what_the_engine_counted(target: Target, name: str) -> None:
    answer = asked(target, name)
    assert answer.dialect is not None
    assert answer.last_usage is not None
    tap = Tap(answer.dialect, answer.shape, max_event_bytes=1 << 20)
    for read in answer.body_reads:
        tap.feed(read.data, read.at_s)
    summary = tap.close(answer.reads[-1].at_s)
    assert summary.terminal
    assert summary.bad_events == 0
    assert summary.completion_tokens == answer.last_usage["output_tokens"]
    assert summary.first_token is not None
    assert (Flag.TOOL_CALLS in summary.flags) == name.endswith("-tool")


def test_the_openai_client_reads_a_stream_and_a_body(servers: Servers) -> None:
    """The simulator's; the live tier asks a real engine through the gateway."""
    tool: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
    with openai.OpenAI(base_url=f"http://127.0.0.1:{servers.port_of('base')}/v1", api_key="none") as client:
        with client.responses.stream(model="tiny", input="hello there", tools=[tool]) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_response()
        body = client.responses.create(model="tiny", input="hello there", max_output_tokens=5)
    assert "response.function_call_arguments.done" in kinds
    assert [item.type for item in final.output] == ["reasoning", "function_call"]
    assert (final.status, body.status) == ("completed", "incomplete")
    assert final.usage is not None
    assert final.usage.output_tokens_details.reasoning_tokens > 0


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_the_recorded_one_to_the_byte(target: Target, recorded: Target, name: str) -> None:
    answer, theirs = target.exchange(name), recorded.exchange(name)
    assert (answer.status, answer.body) == (theirs.status, theirs.body)
    assert re.sub(rb"date: .*", b"", answer.head) == re.sub(rb"date: .*", b"", theirs.head)
    assert theirs.status >= 400
