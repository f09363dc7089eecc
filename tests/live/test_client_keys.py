"""What the SDKs make of a gateway whose clients need keys: each refusal is the error class that a user expects.

With a message that a person can read, and a `Retry-After` that the SDK keeps to.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai import DefaultHttpxClient

from tests.live.rig import keys, npm, wire
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until
from tests.live.rig.ways import GatewayMaker

HELLO = [{"role": "user", "content": "hello there"}]
MOST_TOKENS = 500


@pytest.fixture(scope="module")
def keyed(start_gateway: GatewayMaker, engine_a: Engine, run_folder: Path) -> Gateway:
    caps = {"parameters": {"max_tokens": MOST_TOKENS}}
    return start_gateway("keyed", [engine_a], runtime=keys.wanted(run_folder, "keyed") | caps)


@pytest.fixture
def sdk(keyed: Gateway) -> Iterator[Callable[..., openai.OpenAI]]:
    """openai-python with a key; `more` as for its constructor."""
    made: list[openai.OpenAI] = []

    def sdk(key: str, **more: Any) -> openai.OpenAI:
        made.append(openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=key, timeout=60, **{"max_retries": 0, **more}))
        return made[-1]

    yield sdk
    for client in made:
        client.close()


def talk(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "tiny", "messages": HELLO, "temperature": 0, "max_tokens": 8} | more
    )


def message(gateway: Gateway, more: dict[str, Any], **credentials: Any) -> Any:
    with anthropic.Anthropic(base_url=gateway.url, max_retries=0, timeout=60, **credentials) as client:
        return client.messages.create(**{"model": "tiny", "max_tokens": 8, "messages": HELLO} | more)


@pytest.fixture(scope="module")
def good(keyed: Gateway) -> str:
    return keys.make(keyed, "good")


# --- who is let in ---


@pytest.mark.parametrize("way", ["api_key", "auth_token"])
def test_both_ways_of_anthropic_python_to_send_a_key_are_good(keyed: Gateway, good: str, way: str):
    assert message(keyed, {}, **{way: good}).usage.output_tokens == 8
    with pytest.raises(anthropic.AuthenticationError) as caught:
        message(keyed, {}, **{way: "pk-wrong"})
    assert caught.value.body["error"]["type"] == "authentication_error"
    assert "key" in caught.value.body["error"]["message"]


@pytest.mark.parametrize(
    "call",
    [
        talk,
        lambda client: talk(client, stream=True),
        lambda client: client.completions.create(model="tiny", prompt="1 2", max_tokens=4),
        lambda client: client.responses.create(model="tiny", input="hello there"),
        lambda client: client.models.list(),
    ],
    ids=["chat", "chat_stream", "completions", "responses", "models"],
)
def test_a_wrong_key_is_an_authentication_error_everywhere(sdk, good: str, call):
    with pytest.raises(openai.AuthenticationError) as caught:
        call(sdk("pk-wrong"))

    assert caught.value.code == "invalid_api_key"
    assert "key" in caught.value.body["message"]
    assert call(sdk(good))


def test_a_wrong_key_is_one_for_the_npm_client_too(keyed: Gateway):
    errors = npm.play(f"{keyed.url}/v1", "errors", key="pk-wrong")

    nowhere = errors.pop("path")
    assert {(error["name"], error["status"]) for error in errors.values()} == {("AuthenticationError", 401)}
    assert (nowhere["name"], nowhere["status"]) == ("NotFoundError", 404)


def test_a_key_that_is_revoked_is_an_authentication_error_soon(keyed: Gateway, sdk):
    client = sdk(keys.make(keyed, "leaver"))
    assert talk(client)
    keyed.run("keys", "revoke", "leaver")

    def refused() -> bool:
        try:
            talk(client)
        except openai.AuthenticationError:
            return True
        return False

    until(refused, "the revoked key refused", within_s=keys.KNOWN_S, poll_s=0.2)


def test_a_model_that_the_key_is_not_for_is_a_permission_error(keyed: Gateway, sdk):
    key = keys.make(keyed, "narrow", "--model", "large-*")

    with pytest.raises(openai.PermissionDeniedError) as caught:
        talk(sdk(key))
    assert caught.value.code == "key_forbidden"
    assert "tiny" in caught.value.body["message"]
    with pytest.raises(anthropic.PermissionDeniedError) as refused:
        message(keyed, {}, api_key=key)
    assert refused.value.body["error"]["type"] == "permission_error"
    assert list(sdk(key).models.list()) == []


# --- what may be asked ---


def test_an_unknown_model_is_a_not_found_error(keyed: Gateway, sdk, good: str):
    with pytest.raises(openai.NotFoundError) as caught:
        talk(sdk(good), model="other")
    assert caught.value.code == "model_not_found"
    assert "other" in caught.value.body["message"]
    with pytest.raises(anthropic.NotFoundError) as refused:
        message(keyed, {"model": "other"}, api_key=good)
    assert "other" in refused.value.body["error"]["message"]


@pytest.mark.parametrize(
    "wrong, param, setting",
    [
        ({"n": 17}, "n", "n"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "logprobs"),
        ({"max_tokens": MOST_TOKENS + 1}, "max_tokens", "max_tokens"),
        ({"extra_body": {"priority": -5}}, "priority", "priority"),
        ({"extra_body": {"chat_template": "{{ messages }}"}}, "chat_template", "chat_template"),
    ],
    ids=["n", "top_logprobs", "max_tokens", "priority", "chat_template"],
)
def test_a_parameter_over_its_cap_is_a_bad_request_that_names_it(sdk, good: str, wrong, param, setting):
    with pytest.raises(openai.BadRequestError) as caught:
        talk(sdk(good), **wrong)

    assert caught.value.param == param
    assert param in caught.value.body["message"]
    assert f"parameters.{setting}" in caught.value.body["message"]


def test_a_parameter_over_its_cap_is_a_bad_request_of_messages_too(keyed: Gateway, good: str):
    with pytest.raises(anthropic.BadRequestError) as refused:
        message(keyed, {"max_tokens": MOST_TOKENS + 1}, api_key=good)

    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert "max_tokens" in refused.value.body["error"]["message"]


# --- how much ---


def test_a_used_up_rate_is_a_rate_limit_error_that_says_when_there_is_room(keyed: Gateway, sdk):
    client = sdk(keys.make(keyed, "slow", "--rpm", "2"))
    talk(client)
    talk(client)

    with pytest.raises(openai.RateLimitError) as caught:
        talk(client)
    assert (caught.value.code, caught.value.param) == ("quota_exceeded", "requests_per_minute")
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
    with pytest.raises(anthropic.RateLimitError) as refused:
        message(keyed, {}, api_key=client.api_key)
    assert refused.value.body["error"]["type"] == "rate_limit_error"


def test_used_up_tokens_are_a_rate_limit_error_too(keyed: Gateway, sdk):
    client = sdk(keys.make(keyed, "small", "--tpm", "20"))
    talk(client, max_tokens=30)

    with pytest.raises(openai.RateLimitError) as caught:
        talk(client)
    assert caught.value.param == "tokens_per_minute"
    usage = client.get("/usage", cast_to=dict)
    assert usage["minute"]["token_limit"] == 20
    assert usage["minute"]["tokens"] > 20


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_sdks_wait_as_long_as_retry_after_says_and_then_succeed(keyed: Gateway, kind: str):
    """One answer at a time: the second request is refused while the first is open, and comes again by itself."""
    key = keys.make(keyed, f"single-{kind}", "--concurrency", "1")
    bearer = {"Authorization": f"Bearer {key}"}
    endless = wire.chat("count please", max_tokens=MOST_TOKENS, ignore_eos=True, min_tokens=MOST_TOKENS, stream=True)
    answers: list[tuple[float, int, float]] = []
    with wire.Call(keyed.port, wire.CHAT, endless, headers=bearer) as first:
        next(first.events())

        def note(response: Any) -> None:
            if not answers:
                first.leave()
            answers.append(
                (time.monotonic(), response.status_code, float(response.headers.get("retry-after") or "nan"))
            )

        # Looks at each answer on its way to the SDK, and closes the first stream at the refusal.
        http = DefaultHttpxClient(event_hooks={"response": [note]})
        if kind == "openai":
            with openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=key, max_retries=3, http_client=http) as client:
                assert talk(client).usage.completion_tokens == 8
        else:
            with anthropic.Anthropic(base_url=keyed.url, api_key=key, max_retries=3, http_client=http) as client:
                answer = client.messages.create(model="tiny", max_tokens=8, messages=HELLO)
                assert answer.usage.output_tokens == 8

    assert [status for _, status, _ in answers][-1] == 200
    refusals = answers[:-1]
    assert refusals
    assert {status for _, status, _ in refusals} == {429}
    for (at_s, _, wait_s), (next_at_s, _, _) in zip(refusals, answers[1:], strict=True):
        assert next_at_s - at_s >= wait_s >= 1
