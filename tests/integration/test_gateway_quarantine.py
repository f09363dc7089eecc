"""The whole gateway with two workers and a request that kills engines: two deaths, then it is refused everywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import aio
from tests.fakes.backend import End, Request, Script, ScriptedBackend, answer
from tests.fakes.client import Answer
from tests.fakes.gateway_process import GatewayProcess, connection, gateway
from tests.fakes.paced_engine import SECRETS

pytestmark = pytest.mark.asyncio

GOOD = b'{"choices":[{"index":0,"finish_reason":"stop","message":{}}]}'
DEADLY = "deadly"


class MortalEngine:
    """An engine that stops listening and resets every connection when it is asked something deadly."""

    def __init__(self) -> None:
        self.backend = ScriptedBackend(answerer=self._answer)
        self.deaths = 0
        self.died = asyncio.Event()

    def _answer(self, asked: Request) -> Script:
        if json.loads(asked.body).get("user") != DEADLY:
            return Script((answer(GOOD),))
        self.deaths += 1
        aio.spawn(self._die(), name="death")
        return Script((), End.HANG)

    async def _die(self) -> None:
        await self.backend.stop()
        self.backend.drop_connections(reset=True)
        self.died.set()

    async def rise(self) -> None:
        self.died.clear()
        await self.backend.start()


@asynccontextmanager
async def mortals(number: int) -> AsyncIterator[list[MortalEngine]]:
    made = [MortalEngine() for _ in range(number)]
    async with AsyncExitStack() as listening:
        for engine in made:
            await listening.enter_async_context(engine.backend)
        yield made


async def asked(running: GatewayProcess, user: str) -> Answer:
    """One request on a fresh connection, so that either worker may get it."""
    body = {"model": "tiny", "user": user, "messages": [{"role": "user", "content": SECRETS["prompt"]}]}
    async with connection(running.clients) as client:
        await client.post(body)
        return await client.answer()


async def worker_of(running: GatewayProcess, answers: int, *, code: str) -> set[int]:
    settled = running.events("request.settled", error_code=code)
    return {event["slot"] for event in settled[-answers:]}


async def delete(running: GatewayProcess, path: str) -> Answer:
    token = (running.runtime_dir / "admin.token").read_text().strip()
    async with connection(running.operators) as client:
        head = f"DELETE {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        await client.send(head.encode())
        return await client.answer()


async def test_two_deaths_then_the_request_is_refused_by_every_worker_while_others_are_served(tmp_path: Path) -> None:
    async with mortals(3) as engines:
        urls = {name: engine.backend.url for name, engine in zip("abc", engines, strict=True)}
        probes = {"health_s": 0.5, "timeout_s": 5}
        async with gateway(tmp_path, urls, workers=2, probes=probes) as running:
            for _ in range(2):
                after = running.now
                assert (await asked(running, DEADLY)).status == 502, "and not replayed"
                await running.event("backend.state", after=after, state="ejected")
                assert (await asked(running, "innocent")).status == 200
            assert sum(engine.deaths for engine in engines) == 2
            told = await running.event("request.quarantined")
            assert len(told["backends"]) == 2
            await running.until(lambda: refused_by_both(running), "both workers refuse it")
            assert (await asked(running, "innocent")).status == 200
            assert sum(engine.deaths for engine in engines) == 2, "the third engine never saw it"

            (item,) = (await running.admin("/admin/v1/quarantine"))["items"]
            assert (item["fingerprint"], item["backends"]) == (told["fingerprint"], told["backends"])
            assert 590 < item["until_wall"] - item["first_wall"] < 700
            assert (await running.admin("/admin/v1/status"))["quarantined"] == 1
            assert await running.total("pacekeeper_quarantined") == 1
            await running.until(lambda: refusals_are_counted(running), "refused requests are counted")
            released = await delete(running, f"/admin/v1/quarantine/{item['fingerprint']}")
            assert released.status == 200
            assert (await delete(running, f"/admin/v1/quarantine/{item['fingerprint']}")).status == 404
            await running.event("request.released", reason="operator")
            await running.event("operator.change", action="quarantine.release")
            for engine in engines:
                if engine.died.is_set():
                    await engine.rise()
            await running.until(lambda: all_serve(running), "all engines are back")
            await running.until(lambda: dies_again(running, engines), "it is let in again")


async def refused_by_both(running: GatewayProcess) -> bool:
    seen: Answer = await asked(running, DEADLY)
    assert (seen.status, seen.error["code"]) == (422, "quarantined")
    slots: set[Any] = {event["slot"] for event in running.events("request.settled", error_code="quarantined")}
    return slots == {0, 1}


async def refusals_are_counted(running: GatewayProcess) -> bool:
    return await running.total("pacekeeper_refusals_total", reason="quarantined") >= 2


async def all_serve(running: GatewayProcess) -> bool:
    return {state for state, _ in (await running.states()).values()} == {"serving"}


async def dies_again(running: GatewayProcess, engines: list[MortalEngine]) -> bool:
    return (await asked(running, DEADLY)).status == 502 and sum(engine.deaths for engine in engines) == 3
