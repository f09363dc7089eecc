"""What clients see, and what is recorded, when a real engine is stopped, killed, frozen or comes back.

The gateway here has a short stall timer, so that a silent engine is noticed while the test waits.
"""

import itertools
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import openai
import pytest

from tests.live.rig import npm as npm_client
from tests.live.rig import wire
from tests.live.rig.crowd import at_once
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until
from tests.live.rig.ways import GatewayMaker

STALL_S = 3.0
# SIGKILL to error event: the kernel closes the sockets at once, the rest is ours.
KILLED_BOUND_S = 0.5
ENDLESS = wire.chat("count please", max_tokens=wire.ENDLESS_TOKENS)


@pytest.fixture(scope="module")
def watchful(start_gateway: GatewayMaker, fleet: dict[str, Engine]) -> Gateway:
    """A gateway with a short stall timer in front of the engine that gets harmed."""
    fleet["engine_b"].whole()
    return start_gateway("watchful", [fleet["engine_b"]], {"timers": {"stall_s": STALL_S}})


@pytest.fixture
def gateway(watchful: Gateway, engine_b: Engine) -> Gateway:
    """The same, once it has noticed that its engine is back."""
    wire.until_answers(watchful.port, "/ready", within_s=15)
    return watchful


@pytest.fixture
def streaming(gateway: Gateway) -> Iterator[tuple[wire.Call, Iterator[wire.Event]]]:
    """A stream in full flow through the gateway, and its further events."""
    with wire.Call(gateway.port, wire.CHAT, wire.endless(stream=True)) as call:
        events = call.events()
        assert len(list(itertools.islice(events, 20))) == 20
        yield call, events


def error_of(event: wire.Event) -> dict:
    """The envelope of an error event; anything else fails."""
    error = event.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert error["message"]
    return error


def record_of(gateway: Gateway, call: wire.Call) -> dict:
    request_id = call.header("x-request-id")
    assert request_id
    return gateway.settled(request_id)


def finish_reasons(events: list[wire.Event]) -> list[str]:
    deltas = [event.json() for event in events if event.data != wire.DONE]
    return [c["finish_reason"] for delta in deltas for c in delta.get("choices", []) if c["finish_reason"]]


@dataclass(frozen=True, slots=True)
class Killed:
    """What four clients got whose engine was killed with SIGKILL while it answered them."""

    at_s: float
    stream: wire.Call
    events: list[wire.Event]
    whole: wire.Call
    python: openai.APIError | None
    npm: dict


def read_until_it_breaks(client: openai.OpenAI) -> openai.APIError | None:
    try:
        for _ in client.chat.completions.create(**ENDLESS, stream=True, extra_body={"ignore_eos": True}):
            pass
    except openai.APIError as broken:
        return broken
    return None


@pytest.fixture(scope="module")
def killed(watchful: Gateway, fleet: dict[str, Engine]) -> Iterator[Killed]:
    """Two streams, a whole answer and the npm client are under way when the engine is killed."""
    engine = fleet["engine_b"]
    engine.whole()
    wire.until_answers(watchful.port, "/ready", within_s=15)
    with (
        openai.OpenAI(base_url=f"{watchful.url}/v1", api_key="unused", max_retries=0, timeout=20) as client,
        ThreadPoolExecutor(2) as pool,
        wire.Call(watchful.port, wire.CHAT, wire.endless(stream=True)) as stream,
        wire.Call(watchful.port, wire.CHAT, wire.endless()) as whole,
    ):
        npm = pool.submit(npm_client.play, f"{watchful.url}/v1", "broken")
        until(lambda: engine.running() == 3, "the npm client's stream at work", within_s=5)
        python = pool.submit(read_until_it_breaks, client)
        until(lambda: engine.running() == 4, "four requests at work", within_s=5)
        events = stream.events()
        assert len(list(itertools.islice(events, 5))) == 5
        engine.kill()
        at_s = time.perf_counter()
        rest = list(events)
        whole.read()
        yield Killed(at_s, stream, rest, whole, python.result(), npm.result())


def test_a_killed_engine_ends_its_stream_with_an_error_event_within_half_a_second(
    watchful: Gateway, killed: Killed, note_figure
):
    *deltas, error, marker = killed.events

    assert marker.data == wire.DONE
    error_of(error)
    assert finish_reasons(deltas) == []
    assert marker.at_s - killed.at_s < KILLED_BOUND_S
    assert record_of(watchful, killed.stream)["outcome"] == "upstream_error"
    note_figure(f"SIGKILL of the engine to the end marker: {(marker.at_s - killed.at_s) * 1000:.0f} ms")


def test_openai_clients_raise_an_api_error_and_no_broken_connection(killed: Killed):
    assert killed.python is not None
    assert not isinstance(killed.python, openai.APIConnectionError)
    assert killed.python.message
    assert killed.npm["name"] == "APIError"
    assert killed.npm["message"]


def test_a_whole_answer_lost_with_its_engine_is_a_502_and_was_sent_once(watchful: Gateway, killed: Killed):
    assert killed.whole.status == 502
    assert json.loads(killed.whole.body)["error"]["message"]
    assert killed.whole.header("x-gateway-error") == "1"
    record = record_of(watchful, killed.whole)
    assert (record["outcome"], record["attempts"]) == ("upstream_error", 1)


def test_without_its_engine_the_gateway_answers_at_once_and_clients_know_the_class(
    watchful: Gateway, killed: Killed, fleet: dict[str, Engine]
):
    fleet["engine_b"].process.sweep()
    with openai.OpenAI(base_url=f"{watchful.url}/v1", api_key="unused", max_retries=0, timeout=10) as client:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as caught:
                client.chat.completions.create(**wire.chat(stream=stream))
            assert caught.value.status_code in {502, 503}
            assert caught.value.response.headers["x-gateway-error"] == "1"
    until(lambda: wire.answers(watchful.port, "/ready", status=503), "the gateway not ready", within_s=15)
    assert wire.answers(watchful.port, "/health")


def test_an_engine_that_is_started_again_on_its_port_is_served_within_seconds(
    watchful: Gateway, killed: Killed, fleet: dict[str, Engine], note_figure
):
    engine = fleet["engine_b"]
    until(lambda: wire.answers(watchful.port, "/ready", status=503), "the gateway not ready", within_s=15)
    engine.start()
    engine.wait()
    took_s = wire.until_answers(watchful.port, "/ready", within_s=10)

    with wire.Call(watchful.port, wire.CHAT, wire.chat(stream=True)) as call:
        events = list(call.events())
    assert events[-1].data == wire.DONE
    assert finish_reasons(events) == ["stop"]
    assert record_of(watchful, call)["outcome"] == "ok"
    note_figure(f"engine serving again to gateway ready: {took_s:.1f} s")


def test_a_frozen_engine_ends_by_the_stall_timer_with_an_error_event(gateway: Gateway, engine_b: Engine, streaming):
    call, events = streaming
    engine_b.freeze()
    frozen_at_s = time.perf_counter()
    try:
        rest = list(events)
    finally:
        engine_b.thaw()

    assert rest[-1].data == wire.DONE
    error_of(rest[-2])
    assert STALL_S - 0.5 < rest[-1].at_s - frozen_at_s < STALL_S + 3
    assert record_of(gateway, call)["outcome"] == "upstream_timeout"
    until(lambda: engine_b.running() == 0, "the thawed engine free", within_s=10)


def test_an_engine_that_thinks_in_silence_for_longer_than_the_stall_timer_is_left_to_think(
    gateway: Gateway, engine_b: Engine
):
    """Nothing is sent while it thinks, but its token counter moves: that is life, and the stream goes on."""

    def think(_: int) -> list[wire.Event]:
        with wire.Call(gateway.port, wire.CHAT, wire.silent()) as call:
            return list(call.events())

    thoughts = at_once(think, range(3), abreast=3)

    for events in thoughts:
        assert events[-2].at_s - events[0].at_s > STALL_S, "it did not think for long enough: nothing was tested"
        assert finish_reasons(events) == ["length"]
        assert events[-1].data == wire.DONE


def test_a_stopped_engine_ends_streams_by_its_own_abort_or_by_our_stall_timer(
    gateway: Gateway, engine_b: Engine, streaming, note_figure
):
    """vLLM's SIGTERM is a race: it either aborts its streams at once or leaves them open without a byte."""
    call, events = streaming
    engine_b.process.send(signal.SIGTERM)
    stopped_at_s = time.perf_counter()
    rest = list(events)
    took_s = rest[-1].at_s - stopped_at_s

    assert rest[-1].data == wire.DONE
    if "error" in json.loads(rest[-2].data):
        error_of(rest[-2])
        assert finish_reasons(rest[:-2]) == []
        outcome = {"upstream_error"} if took_s < STALL_S - 0.5 else {"upstream_timeout"}
        ending = "error event"
    else:
        assert finish_reasons(rest[:-1]) == ["abort"]
        outcome = {"upstream_error"}
        ending = "abort"
    assert record_of(gateway, call)["outcome"] in outcome
    note_figure(f"SIGTERM: {ending} after {took_s:.2f} s")
