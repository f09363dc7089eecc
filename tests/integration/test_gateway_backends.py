"""The whole gateway under load while its backends fail, go and come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.gateway_load import Asked, Load, ask
from tests.fakes.gateway_process import GatewayProcess, gateway
from tests.fakes.paced_engine import DONE, PacedEngine, answered_once, engines

pytestmark = pytest.mark.asyncio

BACK_S = 10.0  # a few seconds by contract, on a machine that has much else to do
AT_ONCE_S = 1.5
QUICK = {"health_s": 0.2}


def down(engine: PacedEngine) -> None:
    """Kill the engine: its streams break off and its port refuses."""
    engine.backend.drop_connections(reset=True)


async def in_state(running: GatewayProcess, **wanted: str) -> bool:
    return {name: state for name, (state, _) in (await running.states()).items()} == wanted


async def test_a_backend_that_dies_costs_its_own_streams_and_serves_again_when_it_is_back(tmp_path: Path) -> None:
    async with engines(2) as (a, b), gateway(tmp_path, {"a": a.backend.url, "b": b.backend.url}) as running:
        loop = asyncio.get_running_loop()
        async with Load(running.clients) as load:
            await load.streaming(10)
            at_a = {asked.request_id for asked in load.open} & set(a.answered)
            await a.backend.stop()
            down(a)
            await running.until(lambda: in_state(running, a="ejected", b="serving"), "a is ejected")
            await load.more(20)
            by_a = len(a.answered)
            await a.backend.start()
            started_at = loop.time()
            await running.until(lambda: in_state(running, a="serving", b="serving"), "a serves")
            await load.until(lambda: len(a.answered) > by_a)
            back_s = loop.time() - started_at
            await load.finish()
        print(f"a backend had its first request {back_s:.2f} s after its start")  # noqa: T201
        assert back_s < BACK_S
        assert {asked.request_id for asked in load.unserved} <= at_a
        assert load.unserved
        for asked in load.unserved:
            assert (asked.failure, asked.answer.whole) == ("", True)
            assert asked.code == "backend_died"
            assert asked.answer.body.endswith(DONE) if asked.stream else asked.answer.status == 502
        assert answered_once(a, b)


async def test_with_every_backend_down_clients_are_told_at_once_and_served_soon_after(tmp_path: Path) -> None:
    async with (
        engines(2) as (a, b),
        gateway(tmp_path, {"a": a.backend.url, "b": b.backend.url}, probes=QUICK) as running,
    ):
        loop = asyncio.get_running_loop()
        for engine in (a, b):
            await engine.backend.stop()
            down(engine)
        first = await ask(running.clients, Asked("first", stream=True, tokens=3, began=loop.time()))
        assert (first.answer.status, first.failure) in {(502, ""), (503, "")}, first  # not known yet to control
        await running.until(lambda: in_state(running, a="ejected", b="ejected"), "both are ejected")
        await running.event("pool.down")
        for stream in (True, False):
            asked = await ask(running.clients, Asked(f"down-{stream}", stream=stream, tokens=3, began=loop.time()))
            assert (asked.answer.status, asked.code) == (503, "nothing_serving"), asked
            assert int(asked.answer.headers["retry-after"]) >= 1
            assert asked.ended is not None
            assert asked.ended - asked.began < AT_ONCE_S

        await b.backend.start()
        started_at = loop.time()
        async with Load(running.clients, streams=0, shorts=1) as load:
            await load.served_since(started_at)
            await load.finish()
        print(f"served {loop.time() - started_at:.2f} s after the start of one of the backends")  # noqa: T201
        assert loop.time() - started_at < BACK_S
        assert {asked.answer.status for asked in load.unserved} <= {503}
        await a.backend.start()
        await running.until(lambda: in_state(running, a="serving", b="serving"), "both serve")
        assert running.events("pool.serving")


async def test_a_restart_of_every_backend_in_turn_refuses_nobody(tmp_path: Path) -> None:
    async with engines(3) as made:
        urls = {name: engine.backend.url for name, engine in zip("abc", made, strict=True)}
        async with gateway(tmp_path, urls, workers=2, probes=QUICK) as running:
            async with Load(running.clients, streams=0, shorts=6) as load:
                await load.more(10)
                for engine in made:
                    await engine.backend.stop()
                    await load.more(10)
                    await engine.backend.start()
                    await running.until(lambda: in_state(running, a="serving", b="serving", c="serving"), "all serve")
                await load.finish()
            assert load.unserved == []
            assert answered_once(*made)
