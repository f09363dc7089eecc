"""Two real engines that keep responses: through the gateway each is found where it was made, whoever is asked."""

import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.live.rig import wire
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until
from tests.live.rig.ways import GatewayMaker

ANSWERS = 6


@pytest.fixture(scope="module")
def keepers(run_folder: Path) -> Iterator[list[Engine]]:
    """Two engines that keep what they answer."""
    store = {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}
    engines = [Engine(name, run_folder, env=store) for name in ("keeper-1", "keeper-2")]
    try:
        for engine in engines:
            engine.start()
        for engine in engines:
            engine.wait()
        yield engines
    finally:
        for engine in engines:
            engine.end()


@pytest.fixture(scope="module")
def kept(start_gateway: GatewayMaker, keepers: list[Engine]) -> Gateway:
    return start_gateway("kept", keepers, {"workers": 2, "parameters": {"background": True}})


@pytest.fixture
def client(kept: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{kept.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        yield client


def make(client: openai.OpenAI, **more) -> openai.types.responses.Response:
    return client.responses.create(**{"model": "tiny", "input": "hello there", "temperature": 0, **more})


def test_both_engines_make_responses_and_each_is_found_again(client, kept, keepers):
    made = [make(client) for _ in range(ANSWERS)]
    holders = [
        [engine.name for engine in keepers if wire.answers(engine.port, f"/v1/responses/{response.id}")]
        for response in made
    ]
    assert all(len(names) == 1 for names in holders)
    assert {name for (name,) in holders} == {"keeper-1", "keeper-2"}
    for response, (holder,) in zip(made, holders, strict=True):
        for _ in range(2):  # by way of either worker
            with openai.OpenAI(base_url=f"{kept.url}/v1", api_key="unused", max_retries=0) as fresh:
                raw = fresh.responses.with_raw_response.retrieve(response.id)
            assert raw.headers["x-gateway-backend"] == holder
            assert raw.parse().output_text == response.output_text


def test_a_conversation_goes_on_at_its_engine(client):
    for _ in range(3):
        first = make(client)
        second = make(client, input="count please", previous_response_id=first.id)
        third = make(client, previous_response_id=second.id)
        assert third.previous_response_id == second.id
        assert third.usage.input_tokens > second.usage.input_tokens > first.usage.input_tokens


def test_a_response_in_the_background_is_polled_and_cancelled(client):
    polled = make(client, background=True)
    assert polled.status in {"queued", "in_progress"}
    until(lambda: client.responses.retrieve(polled.id).status == "completed", "an answer", within_s=30)
    endless = make(
        client,
        background=True,
        input="count please",
        max_output_tokens=wire.ENDLESS_TOKENS,
        extra_body={"ignore_eos": True},
    )
    time.sleep(0.2)
    assert client.responses.cancel(endless.id).status == "cancelled"


def test_a_background_stream_can_be_read_again(client):
    events = list(make(client, background=True, stream=True))
    thing = events[0].response.id
    again = list(client.responses.retrieve(thing, stream=True, starting_after=2))
    assert [event.type for event in again] == [event.type for event in events[3:]]
