"""Every setting of the queue changes something: two values of each, and what a client sees of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from gateway.core.routing.backend import BackendState
from tests.fakes.backend import End, Script
from tests.fakes.client import raw_client
from tests.fakes.setting_stage import Stage
from tests.fakes.worker import FakeWorker
from tests.integration.test_every_setting import ASK, Case, tried

pytestmark = pytest.mark.asyncio

SILENT = Script((), End.HANG)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _wait_for_a_place(stage: Stage) -> object:
    """What a request is told, and when, that waits behind one which never ends."""
    async with stage.flow() as (backend, worker), raw_client(worker.port) as first, raw_client(worker.port) as second:
        backend.add(SILENT)
        await first.post(ASK)
        await backend.exchange(0)
        begun = _now()
        await second.post(ASK)
        code = (await second.answer(timeout_s=10_000)).error["code"]
        return code, round(_now() - begun)


async def _wait_for_a_backend(stage: Stage) -> object:
    """When a request is told that nothing serves whose only backend went down a moment ago."""
    async with stage.flow() as (_, worker), raw_client(worker.port) as client:
        snapshot = worker.desk.snapshot
        down = [replace(it, state=BackendState.EJECTED) for it in snapshot.backends]
        worker.serve(down, policy=snapshot.policy, pools=snapshot.pools)
        begun = _now()
        await client.post(ASK)
        assert (await client.answer(timeout_s=10_000)).status == 503
        return round(_now() - begun)


QUEUE_IN_FAKE_TIME: Mapping[str, Case] = MappingProxyType(
    {
        "pools[].queue_s": Case(
            _wait_for_a_place, {5: ("queue_timeout", 5), 9: ("queue_timeout", 9)}, also={"pools[].concurrency": 1}
        ),
        "pools[].deadline_s": Case(
            _wait_for_a_place,
            {4: ("deadline_exceeded", 4), 0: ("queue_timeout", 60)},
            also={"pools[].concurrency": 1},
        ),
        "pools[].hold_s": Case(_wait_for_a_backend, {0: 0, 6: 6}),
    }
)


@pytest.mark.looptime
@pytest.mark.parametrize("path", QUEUE_IN_FAKE_TIME)
async def test_a_wait_ends_when_its_setting_says(path: str, tmp_path: Path) -> None:
    await tried(path, QUEUE_IN_FAKE_TIME[path], tmp_path)


async def _at_once(stage: Stage) -> object:
    """How many of three requests reach a backend that answers none."""
    async with stage.flow() as (backend, worker), contextlib.AsyncExitStack() as clients:
        backend.add(SILENT, SILENT, SILENT)
        for count in range(3):
            client = await clients.enter_async_context(raw_client(worker.port))
            await client.post(ASK)
            await worker.until(partial(_have_come, worker, count + 1))
        return worker.desk.in_flight["a"]


async def _third_request(stage: Stage) -> object:
    """The status of a request that comes when one is served and one waits, 0 when it waits too."""
    async with stage.flow() as (backend, worker), contextlib.AsyncExitStack() as clients:
        backend.add(SILENT)
        for count in range(3):
            client = await clients.enter_async_context(raw_client(worker.port))
            await client.post(ASK)
            await worker.until(partial(_have_come, worker, count + 1))
        return worker.records[0].status if worker.records else 0


def _have_come(worker: FakeWorker, count: int) -> bool:
    """Whether so many requests are being served, wait or have been refused."""
    waiting = sum(it[0] for flows in worker.gate.flows().values() for it in flows.values())
    return sum(worker.desk.in_flight.values()) + waiting + len(worker.records) == count


QUEUE_IN_REAL_TIME: Mapping[str, Case] = MappingProxyType(
    {
        "pools[].concurrency": Case(_at_once, {1: 1, 2: 2, 0: 3}),
        "pools[].queue": Case(_third_request, {1: 503, 5: 0}, also={"pools[].concurrency": 1}),
    }
)


@pytest.mark.parametrize("path", QUEUE_IN_REAL_TIME)
async def test_a_setting_changes_what_is_seen(path: str, tmp_path: Path) -> None:
    await tried(path, QUEUE_IN_REAL_TIME[path], tmp_path)
