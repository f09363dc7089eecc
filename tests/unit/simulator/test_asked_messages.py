"""What requests of the Messages API ask for; their errors are held by tests/conformance."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.simulator.asked import Asked, Limits
from gateway.simulator.asked_messages import count_page, read_messages
from gateway.simulator.asked_responses import read_responses
from gateway.simulator.refusals import Refused

LIMITS = Limits(model="m", max_model_len=100)
HELLO = [{"role": "user", "content": "hello there"}]


def messages(**fields: Any) -> Asked:
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": HELLO} | fields).encode()
    return read_messages(body, b"application/json", limits=LIMITS)


def refused(**fields: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        messages(**fields)
    error: dict[str, Any] = json.loads(caught.value.body)["error"]
    return error


def test_both_apis_count_a_prompt_alike() -> None:
    other = read_responses(b'{"model": "m", "input": "hello there"}', b"application/json", limits=LIMITS)
    assert messages().prompt_tokens == other.prompt_tokens


@pytest.mark.parametrize(
    "thinking,thinks",
    [({"type": "disabled"}, False), ({"type": "adaptive"}, True)],
)
def test_disabled_thinking_stops_that_of_a_message(thinking: dict[str, Any], thinks: bool) -> None:
    assert messages(thinking=thinking).thinks is thinks


def test_counting_tokens_counts_what_a_message_would_be_charged() -> None:
    body = json.dumps({"model": "m", "messages": HELLO}).encode()
    counted = json.loads(count_page(body, b"application/json", limits=LIMITS))
    assert counted["input_tokens"] == messages().prompt_tokens


def test_all_faults_are_told_at_once_with_the_place_of_the_first() -> None:
    error = refused(messages=[{"role": "wizard"}], max_tokens=0)
    assert error["message"].startswith("3 validation errors:\n")
    assert error["param"] == "body.messages.0.role"


def test_the_tool_that_is_called_is_the_first_or_the_named_one_or_none() -> None:
    given = [{"name": "look", "input_schema": {}}, {"name": "seek", "input_schema": {}}]
    assert messages(tools=given).tool == "look"
    assert messages(tools=given, tool_choice={"type": "tool", "name": "seek"}).tool == "seek"
    assert messages(tools=given, tool_choice={"type": "none"}).tool == ""


def test_the_text_of_every_kind_of_block_counts() -> None:
    blocks = [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "two"}]}]},
    ]
    assert messages(messages=blocks, system=[{"type": "text", "text": "zero"}]).prompt == "zero\none\ntwo"
