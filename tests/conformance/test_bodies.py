"""What was found about whole bodies, pages and errors, one finding a check."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.conformance.targets import Target

# Every recorded error whose words do not depend on the model: the bodies must be the same to the byte.
ERRORS = {
    "error-bad-json": 400,
    "error-bad-model": 404,
    "error-bad-model-stream": 404,
    "error-bad-tool-choice": 400,
    "error-completions-bad-model": 404,
    "error-embeddings": 404,
    "error-empty-body": 400,
    "error-empty-messages": 400,
    "error-image": 400,
    "error-max-tokens-too-big": 400,
    "error-max-tokens-too-big-stream": 400,
    "error-missing-messages": 400,
    "error-n-zero": 400,
    "error-negative-max-tokens": 400,
    "error-not-object": 400,
    "error-stream-options-without-stream": 400,
    "error-temperature": 400,
    "error-text-content-type": 400,
    "error-too-long-prompt": 400,
    "error-too-long-prompt-stream": 400,
    "error-wrong-type": 400,
    "error-wrong-type-messages": 400,
    "error-zero-max-tokens": 400,
    "get-not-found": 404,
    "get-method-not-allowed": 405,
}
HEAD_LINES = ["date", "server", "content-length", "content-type", "vary"]


def body_of(target: Target, name: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(target.exchange(name).body)
    return parsed


def head_lines(raw: bytes) -> list[str]:
    return [line.partition(":")[0] for line in raw.decode().split("\r\n")[1:-2]]


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_the_recorded_one_to_the_byte(target: Target, name: str, recorded: Target) -> None:
    answer = target.exchange(name)
    assert answer.status == ERRORS[name]
    assert answer.body == recorded.exchange(name).body
    assert re.sub(rb"date: .*", b"", answer.head) == re.sub(rb"date: .*", b"", recorded.exchange(name).head)


def test_errors_are_objects_except_those_of_the_framework(target: Target) -> None:
    assert list(body_of(target, "error-bad-model")["error"]) == ["message", "type", "param", "code"]
    assert list(body_of(target, "get-not-found")) == ["detail"]
    assert list(body_of(target, "get-method-not-allowed")) == ["detail"]


@pytest.mark.parametrize("name", ["error-missing-model", "error-unknown-field", "error-unknown-role"])
def test_what_vllm_lets_through_is_answered(target: Target, name: str) -> None:
    answer = target.exchange(name)
    assert answer.status == 200
    assert json.loads(answer.body)["choices"][0]["finish_reason"] == "length"


def test_head_of_health_is_405_with_a_length_and_no_body(target: Target) -> None:
    answer = target.exchange("head-health")
    assert answer.status == 405
    assert answer.headers["allow"] == "GET"
    assert answer.headers["content-length"] == "31"
    assert answer.body == b""


@pytest.mark.parametrize("name", ["get-health", "get-ping", "post-ping"])
def test_health_and_ping_are_empty_200s_without_a_type(target: Target, name: str) -> None:
    answer = target.exchange(name)
    assert answer.status == 200
    assert head_lines(answer.head) == ["date", "server", "content-length", "vary"]
    assert answer.body == b""


@pytest.mark.parametrize("name", ["get-load", "get-load-idle", "get-load-untracked"])
def test_load_of_an_idle_server_is_zero(target: Target, name: str) -> None:
    assert target.exchange(name).body == b'{"server_load":0}'


def test_version_has_one_key(target: Target) -> None:
    assert list(body_of(target, "get-version")) == ["version"]


def test_models_has_the_recorded_keys(target: Target, recorded: Target) -> None:
    ours, theirs = body_of(target, "get-models"), body_of(recorded, "get-models")
    assert list(ours) == list(theirs)
    assert list(ours["data"][0]) == list(theirs["data"][0])
    assert list(ours["data"][0]["permission"][0]) == list(theirs["data"][0]["permission"][0])
    assert (ours["data"][0]["id"], ours["data"][0]["max_model_len"]) == ("tiny", 2048)


def test_tokenize_has_the_recorded_keys(target: Target) -> None:
    answer = body_of(target, "tokenize")
    assert list(answer) == ["count", "max_model_len", "tokens", "token_strs"]
    assert len(answer["tokens"]) == answer["count"]


def test_metrics_has_every_family_of_vllm_with_its_labels(target: Target, recorded: Target) -> None:
    def series(page: bytes) -> set[tuple[str, tuple[str, ...]]]:
        found = re.findall(r"^(vllm:\w+?)\{(.*)\} \S+$", page.decode(), re.MULTILINE)
        plain = [(name, labels) for name, labels in found if name not in LOOSE]
        return {(name, tuple(sorted(re.findall(r'(\w+="[^"]*")', labels)))) for name, labels in plain}

    page = target.exchange("get-metrics")
    assert page.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
    missing = {name for name, _ in series(recorded.exchange("get-metrics").body) - series(page.body)}
    assert missing == set()


# Its labels are the server's configuration.
LOOSE = {"vllm:cache_config_info"}


@pytest.mark.parametrize("name", ["chat-nonstream", "chat-nonstream-token-ids", "chat-nonstream-logprobs"])
def test_a_whole_chat_body_has_the_recorded_keys_in_order(target: Target, name: str, recorded: Target) -> None:
    answer = target.exchange(name)
    ours, theirs = json.loads(answer.body), body_of(recorded, name)
    assert head_lines(answer.head) == HEAD_LINES
    assert list(ours) == list(theirs)
    assert list(ours["choices"][0]) == list(theirs["choices"][0])
    assert list(ours["choices"][0]["message"]) == list(theirs["choices"][0]["message"])
    assert list(ours["usage"]) == list(theirs["usage"])


def test_a_whole_body_with_a_tool_call_has_no_content(target: Target, recorded: Target) -> None:
    message = body_of(target, "chat-nonstream-tool")["choices"][0]["message"]
    assert list(message) == list(body_of(recorded, "chat-nonstream-tool")["choices"][0]["message"])
    assert message["content"] is None
    assert "city" in json.loads(message["tool_calls"][0]["function"]["arguments"])


def test_a_whole_completions_body_has_the_recorded_keys_and_no_details(target: Target, recorded: Target) -> None:
    ours, theirs = body_of(target, "completions-nonstream"), body_of(recorded, "completions-nonstream")
    assert list(ours) == list(theirs)
    assert list(ours["choices"][0]) == list(theirs["choices"][0])
    assert ours["usage"]["completion_tokens_details"] is None


def test_logprobs_list_one_entry_a_token(target: Target) -> None:
    choice = body_of(target, "chat-nonstream-logprobs")["choices"][0]
    assert len(choice["logprobs"]["content"]) == 4
    assert list(choice["logprobs"]["content"][0]) == ["token", "logprob", "bytes", "top_logprobs"]


def test_request_metrics_of_a_whole_body_name_speculation(target: Target) -> None:
    assert "speculative_decoding" in body_of(target, "metrics-chat-nonstream")["metrics"]


@pytest.mark.parametrize("name", ["drain-new-request-0", "drain-new-request-1"])
def test_a_request_to_a_draining_server_is_500_in_these_words(recorded: Target, name: str) -> None:
    answer = recorded.exchange(name)
    assert answer.status == 500
    assert "vary" not in answer.headers
    assert b"cannot schedule new futures after shutdown" in answer.body
