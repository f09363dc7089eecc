"""Routing by measured rate with everything real but the GPUs: simulated engines, sockets, the command, its records.

In compressed time, one engine well and two of them half as fast. What is compared are rates that the gateway recorded
in the same minute, with a wide margin: `python -m benchmarks.unequal` gives the figures.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.published import stage
from benchmarks.published.stage import EngineStart, Gateway
from benchmarks.unequal.figures import weighted
from benchmarks.unequal.scenes import PRESET, SCENES
from benchmarks.unequal.traffic import Traffic
from gateway.core.routing.policy import Policy
from gateway.simulator import library

SPEED = 8.0
STREAMS = 3
ANSWERS = 18
WITHIN_S = 45.0
ENGINES = ("well", "slow-1", "slow-2")
[DRIFTS] = [scene.engines for scene in SCENES if scene.name == "three-slow"]


def median_pace(records: list[dict[str, Any]]) -> float:
    """Of the streams at any moment."""
    paces = [(it["summary"].get("decode_tps"), it["summary"]["completion_tokens"]) for it in records]
    return weighted([(tps, tokens / tps) for tps, tokens in paces if tps], 0.5)


async def next_answers(gateway: Gateway) -> list[dict[str, Any]]:
    """Those that end from now on, the first few of which began under what was before."""
    since = time.time()
    async with asyncio.timeout(WITHIN_S):
        while True:
            await asyncio.sleep(0.3)
            found = await asyncio.to_thread(gateway.ended, since, time.time())
            if len(found) >= ANSWERS:
                return found[:-STREAMS]  # newest first


async def until_only(gateway: Gateway, backend: str) -> None:
    """Wait until nothing but ``backend`` ends answers."""

    async def others() -> bool:
        return any(it["backend"] != backend for it in await asyncio.to_thread(gateway.records, 2 * STREAMS))

    async with asyncio.timeout(WITHIN_S):
        while await others():  # noqa: ASYNC110  (another process, which is asked)
            await asyncio.sleep(0.2)


async def story(by_load: Gateway, by_rate: Gateway, pid: int) -> tuple[float, float]:
    """The median pace by least in flight, and in the same gateway by measured rate after a reload."""
    traffic = Traffic(by_load.port, model=library.load(PRESET).model.name, seed=1, first=0)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(traffic.closed(STREAMS))
        first = median_pace(await next_answers(by_load))
        by_rate.command()
        os.kill(pid, signal.SIGHUP)
        await until_only(by_rate, "well")
        second = median_pace(await next_answers(by_rate))
        running.cancel()
    return first, second


def test_over_real_sockets_the_median_stream_is_faster_by_measured_rate_than_by_least_in_flight(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ports: Mapping[str, int] = {
            name: stack.enter_context(
                stage.engine(tmp_path, EngineStart(preset=PRESET, speed=SPEED, is_warm=True, drift=DRIFTS[name]))
            ).port
            for name in ENGINES
        }
        folder, listening = tmp_path / "gateway", stage.free_pair()
        folder.mkdir()
        by_load, by_rate = (
            Gateway(
                folder,
                ports=listening,
                engines=ports,
                pool={"routing": {"policy": policy.value}},
                more={"probes": {"scrape_s": 2.0 / SPEED}},
            )
            for policy in (Policy.LEAST_IN_FLIGHT, Policy.MEASURED_RATE)
        )
        with stage.serving(by_load, folder) as process:
            first, second = uvloop.run(story(by_load, by_rate, process.pid))
    assert second > 1.25 * first, "68 against 40 tokens a second, before compression"
