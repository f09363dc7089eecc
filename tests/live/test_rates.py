"""The numbers: the gateway counts what vLLM counts, and its rates are vLLM's within a few percent."""

from typing import Any

import openai
import pytest

from tests.live.rates import PROMPTS, Compared, Pace, summarise, table, undisturbed
from tests.live.rig import wire
from tests.live.rig.crowd import at_once
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway

CONVERSATIONS = 40
ENOUGH = 20
ROUNDS = 3


@pytest.fixture
def pace(gateway: Gateway, idle: Engine) -> Pace:
    return Pace(gateway.port, gateway.operators_port, gateway.token())


def paced(gateway: Gateway, mode: str) -> list[Any]:
    """The chunks that openai-python gets of a stream whose client wants its pace."""
    headers = {"X-Gateway-Metrics": mode}
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0, default_headers=headers
    ) as client:
        return list(client.chat.completions.create(**wire.chat("count please"), stream=True))


@pytest.mark.parametrize("concurrency, bound", [(1, 0.03), (16, 0.10)])
def test_counts_equal_vllms_and_rates_are_within_the_bound(pace: Pace, note_figure, concurrency, bound):
    """Streams that the machine disturbed say nothing about the rates, and are replaced; their counts still count."""
    compared: list[Compared] = []
    calm: list[Compared] = []
    for _ in range(ROUNDS):
        compared += pace.compare_many(concurrency, CONVERSATIONS)
        calm = undisturbed(compared, bound=bound)
        if len(calm) >= ENOUGH:
            break
    note_figure(f"all streams:\n{table([summarise(concurrency, compared)])}")
    note_figure(f"undisturbed (client's own within {bound:.0%}):\n{table([summarise(concurrency, calm)])}")

    assert [one for one in compared if not one.counts_agree] == []
    assert len(calm) >= ENOUGH, "the machine is too busy for rates"
    assert [one for one in calm if abs(one.difference) > bound] == []


def test_what_the_client_is_told_is_what_the_history_keeps(pace: Pace):
    for body in PROMPTS:
        one = pace.compare(body)

        assert one.told_tps == pytest.approx(one.kept_tps, rel=1e-3)


def test_openai_python_finds_its_pace_inside_the_usage_when_asked_for_there(gateway: Gateway):
    *deltas, last = paced(gateway, "usage")

    assert last.choices == []
    assert last.usage.completion_tokens == last.usage.pacekeeper["completion_tokens"] == 367
    assert last.usage.pacekeeper["decode_tps"] > 0
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in deltas)


def test_openai_python_accepts_its_pace_as_a_last_event_without_usage(gateway: Gateway):
    *deltas, last = paced(gateway, "event")

    assert last.choices == []
    assert last.usage is None
    assert last.pacekeeper["completion_tokens"] == 367
    assert last.pacekeeper["decode_tps"] > 0
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in deltas)


def test_an_answer_in_one_piece_carries_its_pace_and_timing_when_asked_for(gateway: Gateway):
    headers = {"X-Gateway-Metrics": "usage"}
    with wire.Call(gateway.port, wire.CHAT, wire.chat(max_tokens=8), headers=headers) as call:
        usage = call.json()["usage"]

        assert usage["pacekeeper"]["completion_tokens"] == usage["completion_tokens"] == 8
        assert "backend;dur=" in (call.header("server-timing") or "")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_counts_of_clients_that_did_not_ask_for_usage_add_up_to_the_engines_own_counter(
    gateway: Gateway, idle: Engine, stream
):
    def ask(number: int) -> str:
        body = {**PROMPTS[number % len(PROMPTS)], "stream": stream}
        with wire.Call(gateway.port, wire.CHAT, body) as call:
            call.read()
            return call.header("x-request-id") or ""

    before = idle.generated_tokens()
    records = [gateway.settled(request_id) for request_id in at_once(ask, range(20), abreast=4)]

    assert sum(record["summary"]["completion_tokens"] for record in records) == idle.generated_tokens() - before
    assert {record["outcome"] for record in records} == {"ok"}
    assert {record["summary"]["total_exactness"] for record in records} == {"exact"}
