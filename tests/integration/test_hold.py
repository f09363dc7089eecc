"""Waiting for a backend that is expected back (`hold_s`), in fake time: how long, what is told, what is left behind."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import PoolView
from gateway.core.stream.summary import Ending
from gateway.proxy.waiting import WaitingRoom
from tests.fakes.backend import ScriptedBackend
from tests.fakes.client import raw_client
from tests.fakes.worker import FakeWorker, backend_view
from tests.integration.test_queue import ASK, Engine, ask, asking, key, now, stage, waiting

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

POOLS = (PoolView(name="main", hold_s=10.0),)


def take_down(engine: Engine, worker: FakeWorker, state: BackendState = BackendState.EJECTED) -> None:
    worker.serve([backend_view(engine.backend.url, state=state)], pools=POOLS)


def bring_back(engine: Engine, worker: FakeWorker) -> None:
    worker.serve([backend_view(engine.backend.url)], pools=POOLS)


@pytest.mark.parametrize("away_s, retry_after_s", [(12, 6), (40, 20), (119, 60), (5000, 60)])
async def test_the_longer_nothing_has_served_the_later_clients_are_told_to_come_back(
    away_s: int, retry_after_s: int
) -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        take_down(engine, worker)
        await asyncio.sleep(away_s)
        seen = await ask(worker)
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        assert int(seen.headers["retry-after"]) == pytest.approx(retry_after_s, abs=1)


async def test_a_client_that_leaves_while_it_is_held_leaves_nothing_behind() -> None:
    async with stage(hold_s=10.0, keys=(key("k"),)) as (engine, worker):
        take_down(engine, worker)
        async with raw_client(worker.port) as leaver:
            await leaver.post(ASK, headers={"Authorization": "Bearer pk-k"})
            await waiting(worker, 1)
            leaver.reset()
            await waiting(worker, 0)
        record = await worker.record()
        assert (record.ending, record.backend, record.attempts) == (Ending.CLIENT_GONE, "", 0)
        assert (worker.desk.in_flight, worker.desk.holding, worker.gate.flows()) == ({}, 0, {})
        assert worker.gate.claims().get("concurrency:k") is None
        assert worker.desk.quiet.is_set()
        bring_back(engine, worker)
        await asyncio.sleep(1)
        assert engine.asked == []


async def test_all_that_are_held_are_served_when_one_backend_is_back() -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        take_down(engine, worker)
        held = [asking(worker, str(at)) for at in range(5)]
        await waiting(worker, 5)
        await asyncio.sleep(9)
        bring_back(engine, worker)
        await engine.has(5)
        for at in range(5):
            engine.let_go(at)
        assert {(await it).status for it in held} == {200}
        assert all((record.queue_s or 0) >= 8.9 for record in worker.records)


async def test_however_many_could_not_reach_a_backend_they_are_looked_after_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []

    def look_again(room: WaitingRoom) -> None:
        looks.append(now())
        look(room)

    look = WaitingRoom.look_again
    monkeypatch.setattr(WaitingRoom, "look_again", look_again)
    async with stage(hold_s=10.0) as (engine, worker):
        await engine.backend.stop()
        began, held = now(), [asking(worker, str(at)) for at in range(20)]
        await asyncio.sleep(5.5)
        assert len([it for it in looks if it > began]) <= 12, "two a second at most, whoever waits"
        await engine.backend.start()
        await engine.has(20)
        for at in range(20):
            engine.let_go(at)
        assert {(await it).status for it in held} == {200}
        assert worker.gate.flows() == {}


async def test_a_backend_that_says_it_is_coming_is_waited_for_in_full_by_each() -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        take_down(engine, worker, BackendState.LOADING)
        await asyncio.sleep(100)
        began = now()
        seen = await ask(worker)
        assert (seen.status, round(now() - began)) == (503, 10)
        assert int(seen.headers["retry-after"]) == pytest.approx(55, abs=1)


async def test_a_deadline_ends_before_the_hold_does() -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        take_down(engine, worker)
        began = now()
        seen = await ask(worker, X_Gateway_Deadline="3")
        assert (seen.status, seen.error["code"], round(now() - began)) == (504, "deadline_exceeded", 3)


async def test_a_key_that_is_revoked_is_held_no_longer() -> None:
    async with stage(hold_s=10.0, keys=(key("k"),)) as (engine, worker):
        take_down(engine, worker)
        held = asking(worker, key="pk-k")
        await waiting(worker, 1)
        worker.know(key("k", revoked_wall=1.0))
        assert (await held).status == 401


async def test_of_two_that_refuse_either_may_come_back_first() -> None:
    """A request that one of them refused is not held for the other one alone."""
    async with stage(hold_s=10.0) as (engine, worker), ScriptedBackend(answerer=engine._answer) as second:
        views = [backend_view(engine.backend.url, "a"), backend_view(second.url, "b")]
        worker.serve(views, pools=POOLS)
        for backend in (engine.backend, second):
            await backend.stop()
        held = [asking(worker, str(at)) for at in range(6)]
        await waiting(worker, 6)
        await asyncio.sleep(2)
        away = [msgspec.structs.replace(view, state=BackendState.EJECTED) for view in views]
        worker.serve(away, pools=POOLS)
        await asyncio.sleep(2)
        await engine.backend.start()
        worker.serve([views[0], away[1]], pools=POOLS)
        for at in range(6):
            await worker.until(lambda at=at: len(engine.gates) > at)  # type: ignore[misc]
            engine.let_go(at)
        assert {(await it).status for it in held} == {200}


async def test_what_only_one_backend_can_answer_is_not_held_but_told_at_once() -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        worker.pipeline._owners.memory.note("resp_1", "a")
        await engine.backend.stop()
        began = now()
        async with raw_client(worker.port) as client:
            await client.send(b"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: g\r\n\r\n")
            seen = await client.answer()
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        assert now() - began < 1
        assert (await worker.record()).attempts == 1


async def test_refusals_and_waits_are_counted() -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        take_down(engine, worker)
        held = asking(worker)
        await waiting(worker, 1)
        assert worker.gate.flows() == {"main": {"": (1, 0)}}
        assert (await held).status == 503
        assert worker.gate.refusals == {"main|nothing_serving": 1}
