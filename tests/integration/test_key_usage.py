"""``GET /v1/usage`` over three workers: it adds up, says what is left of each limit, and is a key's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.control.keysfile import replace_file
from gateway.core.admission.keys import Key, KeyLimits, KeyScope, digest_of
from gateway.settings.keys import write_keys
from tests.fakes.backend import Request, Script, ScriptedBackend, answer
from tests.fakes.client import Answer
from tests.fakes.gateway_process import GatewayProcess, connection, gateway, get

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]  # whole gateways, on machines that have much else to do

WITHIN_S = 20.0
PROMPT, COMPLETION, REASONING = 7, 20, 5
REQUESTS = 30
LIMITS = KeyLimits(concurrency=10, requests_per_minute=100, tokens_per_minute=10_000, tokens_per_day=50_000)


def key(name: str, **given: Any) -> Key:
    return Key(id=name, digest=digest_of(f"pk-{name}"), **given)


class Engine:
    """Answers at once, or when the test says so."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.backend = ScriptedBackend(answerer=self._answer)
        self.backend.models = ("tiny", "large")

    def _answer(self, _: Request) -> Script:
        usage = {
            "prompt_tokens": PROMPT,
            "completion_tokens": COMPLETION,
            "completion_tokens_details": {"reasoning_tokens": REASONING},
        }
        message = {"role": "assistant", "content": "y", "reasoning": "x"}
        body = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        return Script((self.gate, answer(json.dumps(body).encode())))


@asynccontextmanager
async def three_workers(folder: Path, *keys: Key) -> AsyncIterator[tuple[Engine, GatewayProcess]]:
    path = folder / "keys.json"
    replace_file(path, write_keys(keys))
    engine = Engine()
    async with engine.backend:
        auth = {"clients": "keys", "keys_file": str(path)}
        async with gateway(folder, {"a": engine.backend.url}, workers=3, auth=auth) as running:
            yield engine, running


async def chat(running: GatewayProcess, name: str, model: str = "tiny") -> Answer:
    async with connection(running.clients) as client:
        await client.post({"model": model, "messages": []}, headers={"x-api-key": f"pk-{name}"})
        return await client.answer(timeout_s=30)


async def usage(running: GatewayProcess, name: str) -> dict[str, Any]:
    seen = await get(running.clients, "/v1/usage", headers={"x-api-key": f"pk-{name}"})
    assert seen.status == 200, seen.body
    found: dict[str, Any] = json.loads(seen.body)
    return found


def counts(requests: int) -> dict[str, int]:
    return {
        "requests": requests,
        "prompt_tokens": requests * PROMPT,
        "completion_tokens": requests * COMPLETION,
        "reasoning_tokens": requests * REASONING,
        "tokens": requests * (PROMPT + COMPLETION),
    }


def part(told: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in expected}


async def test_it_adds_up_over_three_workers_and_says_what_is_left(tmp_path: Path) -> None:
    async with three_workers(tmp_path, key("alice", limits=LIMITS), key("bob")) as (_, running):
        for at in range(REQUESTS):
            assert (await chat(running, "alice", "large" if at % 3 == 0 else "tiny")).status == 200
        assert (await chat(running, "bob")).status == 200
        spent = REQUESTS * (PROMPT + COMPLETION)

        def all_served() -> bool:
            return {it["slot"] for it in running.events("request.settled")} == {0, 1, 2}

        await running.until(all_served, "every worker has served some", within_s=WITHIN_S)

        async def all_told() -> bool:
            told = await usage(running, "alice")
            return bool(told["today"]["tokens_left"] == 50_000 - spent and told["today"]["requests"] == REQUESTS)

        await running.until(all_told, "the workers' counts have come together", within_s=WITHIN_S)
        for _ in range(6):  # whichever worker is asked
            told = await usage(running, "alice")
            assert part(told["today"], counts(REQUESTS)) == counts(REQUESTS)
            assert told["models"] == {"large": counts(REQUESTS // 3), "tiny": counts(REQUESTS * 2 // 3)}
            assert told["today"]["until"] - told["today"]["since"] == 86400
            assert (told["today"]["token_limit"], told["today"]["tokens_left"]) == (50_000, 50_000 - spent)
            assert told["concurrency"] == {"limit": 10, "left": 10}
            assert not told["approximate"]
            minute = told["minute"]
            assert 0 <= minute["empty_in_s"] <= 61
            assert minute["requests"] <= REQUESTS
            assert minute["tokens_left"] >= 10_000 - spent
        bob = await usage(running, "bob")
        assert part(bob["today"], counts(1)) == counts(1), "and nothing of the other key's"
        assert (bob["today"]["tokens_left"], bob["minute"]["requests_left"], bob["concurrency"]["left"]) == (None,) * 3


async def test_requests_that_are_open_take_a_place_and_give_it_back(tmp_path: Path) -> None:
    async with three_workers(tmp_path, key("alice", limits=LIMITS)) as (engine, running):
        engine.gate.clear()
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(chat(running, "alice")) for _ in range(6)]

            async def left() -> int:
                return int((await usage(running, "alice"))["concurrency"]["left"])

            async def are_open() -> bool:
                return await left() == 4

            async def have_ended() -> bool:
                return await left() == 10

            await running.until(are_open, "six are open", within_s=WITHIN_S)
            assert (await usage(running, "alice"))["today"]["requests"] == 0, "they count when they have ended"
            engine.gate.set()
            await running.until(have_ended, "all have ended", within_s=WITHIN_S)
        assert {it.result().status for it in asking} == {200}


async def test_a_limit_that_is_used_up_has_nothing_left_and_is_what_the_refusal_names(tmp_path: Path) -> None:
    limits = KeyLimits(tokens_per_day=60)
    async with three_workers(tmp_path, key("alice", limits=limits)) as (_, running):

        async def is_refused() -> bool:
            seen = await chat(running, "alice")
            assert seen.status in {200, 429}
            return seen.status == 429

        await running.until(is_refused, "the day is used up", within_s=WITHIN_S)

        async def none_left() -> bool:
            return (await usage(running, "alice"))["today"]["tokens_left"] == 0

        await running.until(none_left, "nothing is left", within_s=WITHIN_S)
        told = await usage(running, "alice")
        assert told["today"]["tokens"] >= 60 - 3 * (PROMPT + COMPLETION)


async def test_a_worker_that_is_killed_takes_nothing_of_the_day_with_it(tmp_path: Path) -> None:
    async with three_workers(tmp_path, key("alice", limits=LIMITS)) as (_, running):
        for _ in range(9):
            assert (await chat(running, "alice")).status == 200
        spent = 9 * (PROMPT + COMPLETION)

        async def is_told() -> bool:
            today = (await usage(running, "alice"))["today"]
            return bool(today["requests"] == 9 and today["tokens_left"] == 50_000 - spent)

        await running.until(is_told, "all were counted", within_s=WITHIN_S)
        after = running.now
        await running.kill("worker 1")
        await running.event("worker.joined", after=after)
        await running.until(is_told, "and still are", within_s=WITHIN_S)


async def test_it_is_for_keys_that_have_the_scope(tmp_path: Path) -> None:
    keys = key("alice", scopes=(KeyScope.INFERENCE,)), key("watcher", scopes=(KeyScope.USAGE,))
    async with three_workers(tmp_path, *keys) as (_, running):
        for name, status in (("alice", 403), ("watcher", 200), ("nobody", 401)):
            seen = await get(running.clients, "/v1/usage", headers={"x-api-key": f"pk-{name}"})
            assert seen.status == status, name
        assert (await chat(running, "watcher")).status == 403
