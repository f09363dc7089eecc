"""Tasks have names, owners and an end; failures are told."""

from __future__ import annotations

import asyncio

import pytest

from gateway.aio import Nursery, every, spawn

pytestmark = pytest.mark.asyncio


async def test_a_task_that_fails_is_reported_once_with_its_name() -> None:
    failed: list[tuple[str, str]] = []
    reported = asyncio.Event()

    def report(name: str, error: BaseException) -> None:
        failed.append((name, str(error)))
        reported.set()

    async def fail() -> None:
        raise ValueError("no")

    nursery = Nursery(report)
    nursery.spawn(fail(), name="failing")
    await reported.wait()
    await nursery.close()
    assert failed == [("failing", "no")]


async def test_closing_ends_every_task_and_is_no_failure() -> None:
    failed: list[str] = []
    started = asyncio.Event()

    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    nursery = Nursery(lambda name, _error: failed.append(name))
    nursery.spawn(forever(), name="endless")
    await started.wait()
    await nursery.close()
    await nursery.close()
    assert failed == []


@pytest.mark.looptime
async def test_every_ticks_at_once_and_then_by_its_period_slow_ticks_included() -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    ticks: list[float] = []

    async def tick() -> None:
        ticks.append(round(loop.time() - begin, 3))
        await asyncio.sleep(0.3 if len(ticks) == 1 else 2.5)

    task = spawn(every(1.0, tick), name="ticking")
    await asyncio.sleep(6)
    task.cancel()
    assert ticks == [0.0, 1.0, 3.5]
    assert task.get_name() == "ticking"
