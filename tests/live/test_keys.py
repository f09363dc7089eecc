"""Keys before a real engine that caches prefixes and keeps responses: what one key has made is no other's to find."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from gateway.control.keysfile import replace_file
from gateway.core.admission.keys import Key, KeyLimits, digest_of
from gateway.core.request.response_id import is_response_of
from gateway.settings.keys import write_keys
from tests.live.rig import wire
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until
from tests.live.rig.ways import GatewayMaker

SECRETS = {name: f"pk-{name}-{os.urandom(8).hex()}" for name in ("alice", "bob", "shared", "other")}
LIMITS = KeyLimits(tokens_per_day=100_000)
LONG = " ".join(f"word{number}" for number in range(200))  # some blocks of the cache


@pytest.fixture(scope="module")
def keeper(run_folder: Path) -> Iterator[Engine]:
    """An engine that caches prefixes and says so, and keeps responses."""
    store = {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}
    options = ("--enable-prefix-caching", "--enable-prompt-tokens-details")
    engine = Engine("keys", run_folder, *options, env=store)
    try:
        engine.start()
        engine.wait()
        yield engine
    finally:
        engine.end()


@pytest.fixture(scope="module")
def keyed(start_gateway: GatewayMaker, keeper: Engine, run_folder: Path) -> Gateway:
    path = run_folder / "keys-of-clients.json"
    salted = [
        Key(id=name, digest=digest_of(SECRETS[name]), cache_salt=True, limits=LIMITS) for name in ("alice", "bob")
    ]
    plain = [Key(id=name, digest=digest_of(SECRETS[name])) for name in ("shared", "other")]
    replace_file(path, write_keys([*salted, *plain]))
    settings = {
        "workers": 2,
        "parameters": {"background": True},
        "auth": {"clients": "keys", "keys_file": str(path)},
    }
    return start_gateway("keys", [keeper], settings)


def client(keyed: Gateway, name: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=SECRETS[name], max_retries=0, timeout=60)


def cached(keyed: Gateway, name: str, prompt: str, *, api: str = "chat", **more) -> int:
    """Tokens of a prompt that the engine found in its cache."""
    with client(keyed, name) as asking:
        if api == "responses":
            made = asking.responses.create(model="tiny", input=prompt, max_output_tokens=4, extra_body=more or None)
            return made.usage.input_tokens_details.cached_tokens
        if api == "completions":
            made = asking.completions.create(model="tiny", prompt=prompt, max_tokens=4, extra_body=more or None)
        else:
            messages = [{"role": "user", "content": prompt}]
            made = asking.chat.completions.create(
                model="tiny", messages=messages, max_tokens=4, extra_body=more or None
            )
    details = made.usage.prompt_tokens_details
    return (details.cached_tokens or 0) if details else 0


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
def test_a_prompt_is_found_in_the_cache_by_the_same_key_alone(keyed, api, note_figure):
    prompt = f"{api} {LONG}"
    assert cached(keyed, "alice", prompt, api=api) == 0
    again = cached(keyed, "alice", prompt, api=api)
    assert again > 0, "within one key the cache works"
    assert cached(keyed, "bob", prompt, api=api) == 0, "across keys it does not"
    assert cached(keyed, "bob", prompt, api=api) == again
    assert cached(keyed, "bob", prompt, api=api, cache_salt="mine") == 0, "its own salt divides its own prompts"
    assert cached(keyed, "shared", prompt, api=api) == 0
    assert cached(keyed, "other", prompt, api=api) == again, "keys that ask for no salt share"
    note_figure(f"cache_salt, {api}: {again} cached tokens within a key, 0 across keys")


def test_a_response_is_found_by_the_key_that_made_it_and_by_no_other(keyed):
    with client(keyed, "alice") as alice, client(keyed, "bob") as bob:
        made = alice.responses.create(model="tiny", input="hello there", temperature=0)
        assert is_response_of(made.id, "alice"), "the engine has taken the id that it was given"
        for _ in range(4):  # by way of either worker
            with client(keyed, "alice") as fresh:
                assert fresh.responses.retrieve(made.id).output_text == made.output_text
        following = alice.responses.create(model="tiny", input="count please", previous_response_id=made.id)
        assert following.previous_response_id == made.id
        told = []
        for thing in (made.id, f"resp_{'0' * 64}"):
            for attempt in (
                lambda thing=thing: bob.responses.retrieve(thing),
                lambda thing=thing: bob.responses.cancel(thing),
                lambda thing=thing: bob.responses.create(model="tiny", input="x", previous_response_id=thing),
            ):
                with pytest.raises(openai.NotFoundError) as refused:
                    attempt()
                told.append(refused.value.response.text)
        assert told[:3] == told[3:]
        stream = alice.responses.create(model="tiny", input="hello there", stream=True)
        ids = {event.response.id for event in stream if hasattr(event, "response")}
        assert len(ids) == 1
        assert is_response_of(ids.pop(), "alice")


def used(keyed: Gateway, name: str) -> dict:
    _, body = wire.get(keyed.port, "/v1/usage", headers={"x-api-key": SECRETS[name]})
    return json.loads(body)["today"]


def nothing_set_aside(keyed: Gateway, name: str) -> bool:
    """Whether what is left and what was used are the limit together: they come by two ways, one after the other."""
    seen = used(keyed, name)
    return seen["tokens"] + seen["tokens_left"] == LIMITS.tokens_per_day


def test_a_response_in_the_background_is_charged_when_it_has_ended(keyed):
    with client(keyed, "alice") as alice:
        with pytest.raises(openai.BadRequestError, match="max_output_tokens"):
            alice.responses.create(model="tiny", input="hello there", background=True)
        until(lambda: nothing_set_aside(keyed, "alice"), "earlier requests are counted everywhere", within_s=30)
        before = used(keyed, "alice")
        made = alice.responses.create(model="tiny", input="count please", background=True, max_output_tokens=500)
        assert made.status in {"queued", "in_progress"}
        until(lambda: alice.responses.retrieve(made.id).status == "completed", "an answer", within_s=60)
        usage = alice.responses.retrieve(made.id).usage

    def is_charged() -> bool:
        return used(keyed, "alice")["tokens"] == before["tokens"] + usage.total_tokens

    until(is_charged, "its tokens are charged", within_s=30)
    until(lambda: nothing_set_aside(keyed, "alice"), "and nothing is set aside any more", within_s=30)
