from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

from gateway.simulator.asked import Asked
from gateway.simulator.reply import Manners
from gateway.simulator.request import Channel, Emission, Timing, Token
from gateway.simulator.responses import ResponsesAnswer
from gateway.simulator.responses_shapes import Echo, echoed_reasoning, echoed_text, echoed_tool
from gateway.simulator.shapes import Form, Identity
from gateway.simulator.words import END, THINK_CLOSE, THINK_OPEN, TOOL_CLOSE, TOOL_OPEN, tool_call

WORD = Token(" w", Channel.CONTENT, 7)
THOUGHT = Token(" t", Channel.REASONING, 8)
TIMING = Timing(queued_at=0.0, scheduled_at=1.0, first_token_at=3.0, last_token_at=7.0)
CALL = tuple(tool_call("look"))


def answer(manners: Manners | None = None, **asked: Any) -> ResponsesAnswer:
    fields = {"form": Form.RESPONSES, "prompt": "p", "prompt_tokens": 2, "max_tokens": 9, "stream": True} | asked
    identity = Identity(Form.RESPONSES, "resp_1", 1, "m", "f")
    return ResponsesAnswer(identity, Asked(**fields), manners=manners or Manners(), hexes=lambda digits: "0" * digits)


def feed(of: ResponsesAnswer, *tokens: Token, finish: str | None = None) -> list[dict[str, Any]]:
    timing = TIMING if finish else None
    due = of.take(Emission(1, 0, tokens, finish, len(tokens), 1, timing))
    return read(of.flush(due) if due is not None else b"")


def read(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(rb"data: (\{.*)\n", data)]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [kind.removeprefix("response.") for kind, _ in groupby(event["type"] for event in events)]


def whole(of: ResponsesAnswer, *tokens: Token, finish: str = "stop") -> dict[str, Any]:
    assert of.take(Emission(1, 0, tokens, finish, len(tokens), 1, TIMING)) is not None
    body: dict[str, Any] = json.loads(of.whole())
    return body


def test_a_response_opens_with_two_events_before_any_token() -> None:
    events = read(answer().opening())
    assert kinds(events) == ["created", "in_progress"]
    assert events[0]["response"] == events[1]["response"]
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["usage"] is None


def test_an_item_opens_with_its_first_text_and_a_marker_opens_none() -> None:
    of = answer()
    assert feed(of, THINK_OPEN) == []
    assert kinds(feed(of, THOUGHT)) == ["output_item.added", "content_part.added", "reasoning_text.delta"]
    assert kinds(feed(of, THOUGHT)) == ["reasoning_text.delta"]


def test_another_kind_of_text_closes_the_item_that_is_open() -> None:
    of = answer()
    feed(of, THOUGHT)
    assert kinds(feed(of, THINK_CLOSE, WORD)) == [
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta",
    ]  # fmt: skip


def test_merged_tokens_of_every_kind_lose_nothing() -> None:
    of = answer()
    events = feed(of, THINK_OPEN, THOUGHT, THOUGHT, THINK_CLOSE, WORD, *CALL, END, finish="tool_calls")
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    assert output[0]["content"][0]["text"] == " t t"
    assert output[1]["content"][0]["text"] == " w"
    assert json.loads(output[2]["arguments"]) == {"city": "Paris", "unit": "celsius"}
    assert [event["output_index"] for event in events if event["type"] == "response.output_item.done"] == [0, 1, 2]


def test_events_are_numbered_from_the_first() -> None:
    of = answer()
    events = read(of.opening()) + feed(of, THOUGHT) + feed(of, WORD, finish="stop")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_call_that_the_limit_cuts_is_done_as_far_as_it_went() -> None:
    of = answer()
    feed(of, *CALL[:-4])
    events = feed(of, CALL[-4], finish="length")
    call = events[-1]["response"]["output"][0]
    assert (call["type"], call["status"]) == ("function_call", "completed")
    assert events[-1]["response"]["status"] == "incomplete"
    assert call["arguments"]


def test_an_abort_is_completed_like_any_other_end() -> None:
    of = answer()
    feed(of, WORD)
    data = of.abort()
    assert read(data)[-1]["response"]["status"] == "completed"
    assert data.endswith(b"0\r\n\r\n")
    assert of.abort() == b""


def test_an_engines_death_adds_not_a_byte() -> None:
    of = answer()
    feed(of, WORD)
    assert of.broken("dead") == b""
    assert of.is_finished


def test_hidden_reasoning_gives_no_event_but_is_counted() -> None:
    of = answer(include_reasoning=False)
    assert feed(of, THOUGHT) == []
    events = feed(of, WORD, finish="stop")
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]
    assert events[-1]["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] == 1


def test_hidden_reasoning_hides_the_logprobs_too() -> None:
    assert feed(answer(include_reasoning=False, logprobs=2), WORD)[-1]["logprobs"] == []
    assert len(feed(answer(logprobs=2), WORD)[-1]["logprobs"][0]["top_logprobs"]) == 2


def test_metrics_come_with_the_end_and_only_where_the_server_gives_them() -> None:
    with_metrics = feed(answer(Manners(request_metrics=True)), WORD, finish="stop")[-1]["response"]
    assert list(with_metrics)[list(with_metrics).index("metrics") - 1] == "user"
    assert with_metrics["metrics"]["queue_time_ms"] == 1000.0
    assert "metrics" not in feed(answer(), WORD, finish="stop")[-1]["response"]


def test_the_reasoning_item_of_a_whole_body_has_no_status() -> None:
    body = whole(answer(stream=False), THOUGHT, WORD)
    assert [item["status"] for item in body["output"]] == [None, "completed"]


def test_a_whole_body_of_a_call_that_was_cut_has_it_as_text() -> None:
    cut = whole(answer(stream=False), THOUGHT, *CALL[:-4], finish="length")
    assert [item["type"] for item in cut["output"]] == ["reasoning", "message"]
    assert cut["output"][1]["content"][0]["text"].startswith("<tool_call>{")
    called = whole(answer(stream=False, tool="look"), THOUGHT, TOOL_OPEN, *CALL[1:-1], TOOL_CLOSE, END)
    assert called["output"][1]["name"] == "look"


def test_a_response_repeats_its_request() -> None:
    tool = echoed_tool({"type": "function", "name": "look", "parameters": {}})
    echo = Echo(instructions="i", metadata={"a": "b"}, tools=[tool], tool_choice="auto", temperature=0.5)
    response = read(answer(echo=echo).opening())[0]["response"]
    assert (response["instructions"], response["metadata"], response["temperature"]) == ("i", {"a": "b"}, 0.5)
    assert list(response["tools"][0]) == [
        "name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading", "description",
        "output_schema",
    ]  # fmt: skip


def test_what_is_no_function_is_repeated_as_it_was_given() -> None:
    assert echoed_tool({"type": "web_search"}) == {"type": "web_search"}
    assert echoed_reasoning({"effort": "low"})["effort"] == "low"
    assert list(echoed_text({"format": {"type": "json_schema", "name": "n", "schema": {}}})["format"]) == [
        "name", "schema", "type", "description", "strict"
    ]  # fmt: skip
