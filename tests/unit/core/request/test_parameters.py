"""What a request may ask for, rule by rule: the field, its value and the setting are named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.request.body import parse_body
from gateway.core.request.form import parse_form
from gateway.core.request.parameters import RULES, Cap, Permit, check_fields, check_parameters
from gateway.core.routing.parameters import ParameterPolicy
from gateway.core.stream.summary import Dialect
from gateway.errors import BadRequest

SAFE = ParameterPolicy()
OPEN = ParameterPolicy(
    n=1000,
    best_of=1000,
    logprobs=1000,
    prompt_logprobs=1000,
    priority=True,
    background=True,
    chat_template=True,
    processor_kwargs=True,
    transfer_params=True,
    embeds=True,
    remote_media=True,
)


def checked(policy: ParameterPolicy = SAFE, /, **fields: Any) -> None:
    raw(json.dumps({"model": "tiny", **fields}).encode(), policy)


def raw(body: bytes, policy: ParameterPolicy = SAFE) -> None:
    check_parameters(body, parse_body(body, Dialect.CHAT).fields, policy)


def refusal(policy: ParameterPolicy = SAFE, /, **fields: Any) -> tuple[str, str | None]:
    with pytest.raises(BadRequest) as caught:
        checked(policy, **fields)
    return caught.value.message, caught.value.param


@pytest.mark.parametrize(
    "fields,says",
    [
        ({"n": 17}, "n is 17; at most 16 is allowed (parameters.n)"),
        ({"n": 1e30}, "n is 1e+30; at most 16 is allowed (parameters.n)"),
        ({"n": "17"}, "n is 17; at most 16 is allowed (parameters.n)"),
        ({"n": " 1_000 "}, "n is 1000; at most 16 is allowed (parameters.n)"),
        ({"n": "inf"}, "n is inf; at most 16 is allowed (parameters.n)"),
        ({"n": "nan"}, "n is not a number; at most 16 is allowed"),
        ({"n": "many"}, "n is not a number; at most 16 is allowed"),
        ({"n": [17]}, "n is not a number; at most 16 is allowed"),
        ({"best_of": 17}, "best_of is 17; at most 16 is allowed (parameters.best_of)"),
        ({"logprobs": 21}, "logprobs is 21; 0 to 20 is allowed (parameters.logprobs)"),
        ({"logprobs": -1}, "logprobs is -1; 0 to 20 is allowed (parameters.logprobs)"),
        ({"top_logprobs": -1}, "top_logprobs is -1; 0 to 20 is allowed (parameters.logprobs)"),
        ({"prompt_logprobs": 0}, "prompt_logprobs is not allowed here (parameters.prompt_logprobs)"),
        ({"echo": True, "logprobs": 1}, "echo with logprobs is not allowed here (parameters.prompt_logprobs)"),
        ({"priority": -1}, "priority is not allowed here (parameters.priority)"),
        ({"background": True}, "background is not allowed here (parameters.background)"),
        ({"chat_template": "{{ x }}"}, "chat_template is not allowed here (parameters.chat_template)"),
        ({"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs is not allowed here (parameters.processor_kwargs)"),
        ({"media_io_kwargs": {"a": 1}}, "media_io_kwargs is not allowed here (parameters.processor_kwargs)"),
        ({"kv_transfer_params": {"a": 1}}, "kv_transfer_params is not allowed here (parameters.transfer_params)"),
        ({"ec_transfer_params": {"a": 1}}, "ec_transfer_params is not allowed here (parameters.transfer_params)"),
        (
            {"vllm_xargs": {"kv_transfer_params": "x"}},
            "vllm_xargs with transfer parameters is not allowed here (parameters.transfer_params)",
        ),
        *(
            (
                {"chat_template_kwargs": {"enable_thinking": False, name: "x"}},
                "chat_template_kwargs with chat_template or tokenize is not allowed here (parameters.chat_template)",
            )
            for name in ("chat_template", "tokenize")
        ),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds is not allowed here (parameters.embeds)"),
    ],
)
def test_a_refusal_names_the_field_its_value_and_the_setting(fields: dict[str, Any], says: str) -> None:
    assert refusal(**fields) == (says, next(iter(fields)))


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 999, "best_of": 999, "logprobs": 999, "top_logprobs": 999, "prompt_logprobs": 999, "echo": True},
        {"priority": -1, "background": True, "chat_template": "x", "mm_processor_kwargs": {"a": 1}},
        {"media_io_kwargs": {"a": 1}, "kv_transfer_params": {"a": 1}, "ec_transfer_params": {"a": 1}},
        {"vllm_xargs": {"kv_transfer_params": "x"}, "prompt_embeds": "AAAA"},
        {"chat_template_kwargs": {"chat_template": "x"}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_embeds", "image_embeds": "AAAA"}]}]},
    ],
)
def test_each_rule_can_be_lifted(fields: dict[str, Any]) -> None:
    checked(OPEN, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 16, "best_of": 16, "max_tokens": 10**9, "max_completion_tokens": 10**9, "max_output_tokens": 10**9},
        {"n": None, "logprobs": None, "prompt_logprobs": None, "chat_template": None, "priority": None},
        {"logprobs": True, "top_logprobs": 20},
        {"logprobs": False, "echo": True},
        {"logprobs": 0},
        {"echo": False, "logprobs": 5},
        {"priority": 0, "background": False, "chat_template": "", "kv_transfer_params": {}, "mm_processor_kwargs": {}},
        {"vllm_xargs": {"a": [1]}},
        {"vllm_xargs": "{no json"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"tools": [{"function": {"parameters": {"properties": {"n": {"maximum": 99}, "chat_template": {}}}}}]},
        {"unknown": {"n": 10**9}},
    ],
)
def test_what_is_usual_or_says_nothing_passes(fields: dict[str, Any]) -> None:
    checked(**fields)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"])
def test_a_cap_on_tokens_holds_for_each_of_its_names(name: str) -> None:
    policy = ParameterPolicy(max_tokens=100)
    checked(policy, **{name: 100})
    assert refusal(policy, **{name: 101}) == (f"{name} is 101; at most 100 is allowed (parameters.max_tokens)", name)


def test_with_a_cap_of_their_own_prompt_logprobs_are_a_number_like_others() -> None:
    policy = ParameterPolicy(prompt_logprobs=2)
    checked(policy, prompt_logprobs=2, echo=True, logprobs=1)
    assert "prompt_logprobs is 3; 0 to 2" in refusal(policy, prompt_logprobs=3)[0]
    assert "prompt_logprobs is -1; 0 to 2" in refusal(policy, prompt_logprobs=-1)[0]


def test_the_last_of_doubled_keys_counts_as_it_does_for_the_engine() -> None:
    raw(b'{"n":99,"n":1}')
    with pytest.raises(BadRequest):
        raw(b'{"n":1,"n":99}')


def test_a_key_that_is_written_with_escapes_is_the_same_key() -> None:
    with pytest.raises(BadRequest):
        raw(b'{"\\u006e":99}')
    with pytest.raises(BadRequest):
        raw(b'{"vllm_xargs":{"kv\\u005ftransfer_params":1}}')


def test_a_refusal_never_quotes_what_could_be_a_prompt() -> None:
    message, _ = refusal(n="a secret of mine")
    assert "secret" not in message


def test_every_rule_names_a_setting_of_its_kind() -> None:
    for rule in RULES.values():
        default = getattr(SAFE, rule.setting)
        assert isinstance(rule, Permit) is isinstance(default, bool)
        assert not isinstance(rule, Cap) or default >= 0


def test_fields_of_a_form_are_held_against_the_same_rules() -> None:
    def form(name: str, value: str) -> bytes:
        return f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n--x--\r\n'.encode()

    check_fields(parse_form(form("n", "2"), "x").fields, SAFE)
    check_fields(parse_form(form("vllm_xargs", '{"a":1}'), "x").fields, SAFE)
    for name, value in (("n", "17"), ("vllm_xargs", '{"kv_transfer_params":{}}'), ("priority", "5")):
        with pytest.raises(BadRequest):
            check_fields(parse_form(form(name, value), "x").fields, SAFE)


def test_what_turns_out_to_be_no_json_further_down_is_refused() -> None:
    body = b'{"messages":[{"content":[{"\xff":1,"image_url":"http://x"}]}]}'
    with pytest.raises(BadRequest, match="not JSON all through"):
        raw(body)
