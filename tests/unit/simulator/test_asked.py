from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.simulator.asked import Asked, Limits, read_chat, read_completions
from gateway.simulator.refusals import Refused

LIMITS = Limits(model="m", max_model_len=100)
MESSAGES = [{"role": "user", "content": "hello there"}]


def chat(**fields: Any) -> Asked:
    return read_chat(json.dumps({"messages": MESSAGES} | fields).encode(), b"application/json", limits=LIMITS)


def completions(**fields: Any) -> Asked:
    return read_completions(json.dumps(fields).encode(), b"application/json", limits=LIMITS)


def test_an_answer_may_fill_the_context_and_no_more() -> None:
    asked = chat()
    assert asked.max_tokens == 100 - asked.prompt_tokens
    assert chat(max_tokens=99).max_tokens == asked.max_tokens
    assert chat(max_tokens=5).max_tokens == 5


def test_the_newer_name_of_the_limit_wins() -> None:
    assert chat(max_tokens=5, max_completion_tokens=6).max_tokens == 6


def test_numbers_in_strings_and_whole_floats_pass() -> None:
    assert chat(max_tokens="5").max_tokens == 5
    assert chat(max_tokens=5.0).max_tokens == 5


@pytest.mark.parametrize("options", ["x", [], 5])
def test_stream_options_that_are_no_object_are_refused(options: object) -> None:
    with pytest.raises(Refused) as caught:
        chat(stream=True, stream_options=options)
    assert caught.value.status == 400
    assert chat(stream=True, stream_options=None).stream


@pytest.mark.parametrize("value", [True, 1.5, [1]])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(Refused) as refused:
        chat(max_tokens=value)
    assert refused.value.status == 400
    assert b"int_type" in refused.value.body


def test_parts_of_text_are_one_prompt() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat(messages=[{"role": "user", "content": parts}]).prompt == "a b"


def test_tools_name_the_first_unless_none_is_chosen() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert chat(tools=tools).tool == "f"
    assert chat(tools=tools, tool_choice="none").tool == ""


def test_thinking_can_be_switched_off_or_hidden() -> None:
    assert not chat(chat_template_kwargs={"enable_thinking": False}).thinks
    hidden = chat(include_reasoning=False)
    assert hidden.thinks
    assert not hidden.include_reasoning


def test_continuous_usage_needs_usage() -> None:
    assert not chat(stream=True, stream_options={"continuous_usage_stats": True}).continuous_usage


def test_completions_have_sixteen_tokens_unless_they_say() -> None:
    assert completions(prompt="x").max_tokens == 16
    assert completions(prompt=[1, 2, 3]).prompt_tokens == 3
    assert completions(prompt=["a b"]).prompt == "a b"


def test_a_completion_needs_a_prompt() -> None:
    with pytest.raises(Refused) as refused:
        completions(model="m")
    assert b"body.prompt" in refused.value.body


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        read_chat(b"\xff\xfe{", b"application/json", limits=LIMITS)
    assert refused.value.status == 400


def test_a_salt_is_kept() -> None:
    assert chat(cache_salt="s").salt == completions(prompt="x", cache_salt="s").salt == "s"
    assert chat().salt == ""


@pytest.mark.parametrize("salt", ["", 7, ["s"]])
def test_a_salt_that_is_none_is_refused(salt: object) -> None:
    with pytest.raises(Refused) as refused:
        chat(cache_salt=salt)
    assert refused.value.status == 400
    assert b"cache_salt" in refused.value.body
