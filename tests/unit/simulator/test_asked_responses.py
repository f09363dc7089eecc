"""What requests of the Responses API ask for; their errors are held by tests/conformance."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.simulator.asked import Asked, Limits, to_engine
from gateway.simulator.asked_responses import read_responses
from gateway.simulator.responses_shapes import Echo

LIMITS = Limits(model="m", max_model_len=100)
TOOL = {"type": "function", "name": "look", "parameters": {}}
OTHER = {"type": "function", "name": "seek", "parameters": {}}


def responses(**fields: Any) -> Asked:
    body = json.dumps({"model": "m", "input": "hello there"} | fields).encode()
    return read_responses(body, b"application/json", limits=LIMITS)


def echo(**fields: Any) -> Echo:
    found = responses(**fields).echo
    assert found is not None
    return found


def test_a_response_has_the_room_that_the_context_leaves() -> None:
    free = responses()
    assert free.max_tokens == 100 - free.prompt_tokens
    assert responses(max_output_tokens=5).max_tokens == 5


@pytest.mark.parametrize(
    "fields,thinks",
    [
        ({}, True),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"effort": "low"}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}, "reasoning": {"effort": "none"}}, True),
    ],
)
def test_an_effort_of_none_stops_the_thinking_of_a_response(fields: dict[str, Any], thinks: bool) -> None:
    assert responses(**fields).thinks is thinks
    assert (to_engine(responses(**fields)).reasoning_share is None) is thinks


def test_logprobs_are_asked_for_by_include_alone() -> None:
    assert responses(top_logprobs=3).logprobs is None
    assert responses(include=["message.output_text.logprobs"], top_logprobs=3).logprobs == 3
    assert responses(include=["message.output_text.logprobs"]).logprobs == 0


def test_without_randomness_the_echo_says_the_whole_vocabulary() -> None:
    assert echo(temperature=0, top_p=0.9).top_p == 1.0
    assert echo(temperature=1, top_p=0.9).top_p == 0.9
    assert echo().temperature == 1.0


def test_the_echo_of_the_text_gives_way_to_tools() -> None:
    text = {"format": {"type": "text"}, "verbosity": "low"}
    assert echo(text=text).text == text
    assert echo(text=text, tools=[TOOL]).text is None


def test_a_choice_without_tools_is_none() -> None:
    assert echo(tool_choice="auto").tool_choice == "none"
    assert echo(tools=[TOOL]).tool_choice == "auto"


def test_the_tool_that_is_called_is_the_first_or_the_named_one_or_none() -> None:
    tools = [TOOL, OTHER]
    assert responses(tools=tools).tool == "look"
    assert responses(tools=tools, tool_choice={"type": "function", "name": "seek"}).tool == "seek"
    assert responses(tools=tools, tool_choice="none").tool == ""


def test_the_text_of_every_kind_of_item_counts() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {"type": "function_call", "name": "look", "arguments": "two", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "three"},
    ]
    assert responses(input=items, instructions="zero").prompt == "zero\none\ntwo\nthree"
