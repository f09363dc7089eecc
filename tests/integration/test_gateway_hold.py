"""A restart window of the engines, seen from two workers: requests wait for them and nothing is left of who leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import aio
from tests.fakes.client import Answer
from tests.fakes.gateway_process import GatewayProcess, connection, gateway
from tests.fakes.paced_engine import PacedEngine, engines, request

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]  # whole gateways, on machines that have much else to do

QUICK = {"health_s": 0.2}
LONG_S = 120
WITHIN_S = 30.0


@asynccontextmanager
async def held_by(folder: Path, hold_s: float) -> AsyncIterator[tuple[list[PacedEngine], GatewayProcess]]:
    """Two engines in one pool, and a gateway of two workers that waits for them."""
    async with engines(2) as pair:
        listed = [
            {"name": name, "url": engine.backend.url, "api_key_env": "ENGINE_KEY"}
            for name, engine in zip("ab", pair, strict=True)
        ]
        pools: list[dict[str, Any]] = [{"name": "main", "backends": listed, "hold_s": hold_s}]
        async with gateway(folder, {}, workers=2, pools=pools, probes=QUICK) as running:
            await running.until(lambda: in_state(running, "serving"), "both serve", within_s=WITHIN_S)
            yield list(pair), running


async def in_state(running: GatewayProcess, wanted: str) -> bool:
    return {state for state, _ in (await running.states()).values()} == {wanted}


async def take_down(running: GatewayProcess, pair: list[PacedEngine]) -> None:
    for engine in pair:
        await engine.backend.stop()
        engine.backend.drop_connections(reset=True)
    await running.until(lambda: in_state(running, "ejected"), "none serves", within_s=WITHIN_S)


async def chat(running: GatewayProcess, name: str) -> Answer:
    async with connection(running.clients) as client:
        await client.post(request(name, stream=False, tokens=2))
        return await client.answer(timeout_s=LONG_S)


async def waiting(running: GatewayProcess, count: int) -> None:
    async def so_many() -> bool:
        return await running.total("pacekeeper_pool_waiting", pool="main") == count

    await running.until(so_many, f"{count} wait", within_s=WITHIN_S)


async def test_requests_wait_at_both_workers_and_are_served_when_one_engine_is_back(tmp_path: Path) -> None:
    async with held_by(tmp_path, LONG_S) as (pair, running):
        await take_down(running, pair)
        asking = [aio.spawn(chat(running, f"r{at}"), name=f"r{at}") for at in range(12)]
        await waiting(running, 12)
        assert await running.total("pacekeeper_pool_serving", pool="main") == 0, "so those that wait are held"
        assert [engine.answered for engine in pair] == [[], []]
        await pair[1].backend.start()
        assert {(await it).status for it in asking} == {200}
        assert (pair[0].answered, sorted(pair[1].answered)) == ([], sorted(f"r{at}" for at in range(12)))
        await waiting(running, 0)
        assert await running.total("pacekeeper_refusals_total", reason="nothing_serving") == 0

        async def stored() -> bool:
            return len(await running.history()) == 12

        await running.until(stored, "all have their record", within_s=WITHIN_S)
        records = await running.history()
        assert all(it["queue_s"] > 0 and it["outcome"] == "ok" for it in records)


async def test_who_comes_before_anybody_has_noticed_waits_too(tmp_path: Path) -> None:
    async with held_by(tmp_path, LONG_S) as (pair, running):
        for engine in pair:
            await engine.backend.stop()
            engine.backend.drop_connections(reset=True)
        asking = [aio.spawn(chat(running, f"r{at}"), name=f"r{at}") for at in range(4)]
        await running.until(lambda: in_state(running, "ejected"), "none serves", within_s=WITHIN_S)
        await waiting(running, 4)
        await pair[0].backend.start()
        assert {(await it).status for it in asking} == {200}


async def test_a_client_that_leaves_while_it_is_held_leaves_nothing_behind(tmp_path: Path) -> None:
    async with held_by(tmp_path, LONG_S) as (pair, running):
        await take_down(running, pair)
        async with connection(running.clients) as stays:
            await stays.post(request("stays", stream=False, tokens=2))
            for at in range(3):
                async with connection(running.clients) as leaver:
                    await leaver.post(request(f"leaver-{at}", stream=False, tokens=2))
                    await waiting(running, 2)
                    leaver.reset()
                    await waiting(running, 1)

            async def one_is_held() -> bool:
                return await running.total("pacekeeper_in_flight") == 1

            await running.until(one_is_held, "only who stays is held", within_s=WITHIN_S)
            for engine in pair:
                await engine.backend.start()
            assert (await stays.answer(timeout_s=LONG_S)).status == 200
        assert [name for engine in pair for name in engine.answered] == ["stays"]

        async def told() -> bool:
            return len(running.events("request.settled", outcome="client_gone")) == 3

        await running.until(told, "each that left has its record", within_s=WITHIN_S)


async def test_who_was_held_for_long_enough_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with held_by(tmp_path, 2) as (pair, running):
        await take_down(running, pair)
        loop = asyncio.get_running_loop()
        began = loop.time()
        seen = await chat(running, "late")
        assert (seen.status, json.loads(seen.body)["error"]["code"]) == (503, "nothing_serving")
        assert loop.time() - began <= WITHIN_S
        assert 1 <= int(seen.headers["retry-after"]) <= 60
        assert [engine.answered for engine in pair] == [[], []]

        async def counted() -> bool:
            return await running.total("pacekeeper_refusals_total", pool="main", reason="nothing_serving") == 1

        await running.until(counted, "it was counted", within_s=WITHIN_S)
        await waiting(running, 0)
        await pair[0].backend.start()

        async def serves() -> bool:
            return (await chat(running, "later")).status == 200

        await running.until(serves, "served again", within_s=WITHIN_S)
