"""The whole gateway with two workers: limits and counters over both, and a backend that leaves both."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.gateway_load import Asked, Load, ask
from tests.fakes.gateway_process import GatewayProcess, gateway
from tests.fakes.paced_engine import PacedEngine, answered_once, engines

pytestmark = pytest.mark.asyncio

LIMIT = 8
LONG = 400


def urls(a: PacedEngine, b: PacedEngine) -> dict[str, str]:
    return {"a": a.backend.url, "b": b.backend.url}


async def samples_by(running: GatewayProcess, name: str, label: str) -> dict[str, float]:
    """The samples of a metric by one of its labels."""
    return {it.labels[label]: it.value for it in await running.metrics() if it.name == name}


async def test_the_limit_holds_over_both_workers_and_all_of_it_can_be_used(tmp_path: Path) -> None:
    limits = {"in_flight": LIMIT}
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}, workers=2, limits=limits) as running:
        loop = asyncio.get_running_loop()
        open_: list[Asked] = []
        refused: list[Asked] = []
        tasks = []
        try:
            deadline = loop.time() + 20.0
            while len(open_) < LIMIT and loop.time() < deadline:
                asked = Asked(f"hold-{len(open_) + len(refused)}", stream=True, tokens=LONG, began=loop.time())
                task = loop.create_task(ask(running.clients, asked))
                await running.until(partial(has_begun, asked), "an answer has begun")
                (refused if asked.ended else open_).append(asked)
                tasks.append(task)
            assert len(open_) == LIMIT, "the shares never reached the whole limit"
            assert {it.code for it in refused} <= {"overloaded"}
            await running.until(lambda: holding(running, LIMIT), "control knows of all")
            for at in range(12):
                asked = await ask(running.clients, Asked(f"more-{at}", stream=True, tokens=1, began=loop.time()))
                assert (asked.answer.status, asked.code) == (429, "overloaded"), asked
                assert int(asked.answer.headers["retry-after"]) >= 1
            per_worker = await samples_by(running, "pacekeeper_worker_in_flight", "slot")
            assert sum(per_worker.values()) == LIMIT
            assert all(per_worker.values()), "one worker holds everything"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with Load(running.clients, streams=0, shorts=1) as load:
            await load.more(5)  # the places are free again
        await running.until(lambda: holding(running, 0), "nothing is held")


def has_begun(asked: Asked) -> bool:
    return bool(asked.head_at or asked.ended)


async def holding(running: GatewayProcess, count: int) -> bool:
    return await running.total("pacekeeper_in_flight") == count


async def test_both_workers_serve_and_their_counters_are_summed(tmp_path: Path) -> None:
    async with engines(2) as (a, b), gateway(tmp_path, urls(a, b), workers=2) as running:
        async with Load(running.clients, streams=16) as load:
            await load.streaming(16)
            await running.until(lambda: both_hold(running), "both workers have connections")
            await running.until(lambda: balanced(running), "both backends have about half of the streams")
            await load.more(20)
            await load.finish()
        assert load.unserved == []
        total = len(load.asked)

        async def told() -> bool:
            return await running.total("pacekeeper_requests_total") >= total

        await running.until(told, "every request is counted")
        assert await running.total("pacekeeper_requests_total", outcome="ok") == total
        slots = {event["slot"] for event in running.events("request.settled")}
        assert slots == {0, 1}
        assert answered_once(a, b)


async def both_hold(running: GatewayProcess) -> bool:
    connections = await samples_by(running, "pacekeeper_worker_connections", "slot")
    return set(connections) == {"0", "1"} and all(connections.values())


async def balanced(running: GatewayProcess) -> bool:
    streams = await samples_by(running, "pacekeeper_backend_in_flight", "backend")
    return set(streams) == {"a", "b"} and sum(streams.values()) >= 12 and abs(streams["a"] - streams["b"]) <= 4


async def test_a_removed_backend_gets_nothing_more_from_either_worker_and_finishes_what_it_has(tmp_path: Path) -> None:
    async with (
        engines(2) as (a, b),
        gateway(tmp_path, urls(a, b), workers=2, timers={"upstream_idle_s": 0.5}) as running,
    ):
        async with Load(running.clients, streams=12, tokens=(20, 30)) as load:
            await load.streaming(12)
            at_a = [asked for asked in load.open_streams if asked.request_id in a.answered]
            assert at_a
            after = running.now
            running.configure({"b": b.backend.url})
            running.signal(signal.SIGHUP)
            await running.event("config.loaded", after=after, changes="backend a: removed")
            await load.more(10)
            last_of_a = a.answered[-1]
            await load.more(20)
            assert a.answered[-1] == last_of_a
            await load.until(lambda: all(asked.ended for asked in at_a))
            await load.finish()
        assert load.unserved == []
        assert all(asked.served for asked in at_a)
        await running.until(lambda: not a.backend.open_connections, "nobody keeps a connection to it, or probes it")
