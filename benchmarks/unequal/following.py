"""How soon `measured-rate` follows an engine that becomes slow under load, and one that becomes well again.

In real time, since the gateway's own times do not shrink: two equal engines, one of which loses lanes of its PCIe link
and gets them back. Followed is what its clients see: how many of the streams run there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec
import uvloop

from benchmarks.published import stage
from benchmarks.published.stage import EngineStart, Gateway, say
from benchmarks.report import table
from benchmarks.unequal.scenes import PRESET, SCENES
from benchmarks.unequal.traffic import Traffic
from gateway.core.routing.policy import Policy
from gateway.simulator import library

STREAMS: Final = (4, 24)
_CHANGED, _OTHER = "one", "two"
_SETTLE_S: Final = 45.0
_WITHIN_S: Final = 240.0
_POLL_S: Final = 0.5
_POLLS: Final = 6  # the mean of so many counts
_SLOW_BELOW, _WELL_ABOVE = 0.33, 0.42  # of all streams; half of them are there while it is well


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the change until the share of the streams has followed; None: not within four minutes."""

    streams: int
    slow_s: float | None
    well_s: float | None


def followed(folder: Path, *, streams: int, seed: int) -> Followed:
    """Start everything, change the engine and mend it."""
    [drift] = [scene.engines["slow"] for scene in SCENES if scene.name == "pcie"]
    if drift is None:
        raise ValueError("the slow engine of the scene has no drift")
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(
                stage.engine(folder, EngineStart(preset=PRESET, seed=seed + number, is_warm=True))
            )
            for number, name in enumerate((_CHANGED, _OTHER))
        }
        ground = folder / f"following-{streams}"
        ground.mkdir()
        gateway = Gateway(
            ground,
            ports=stage.free_pair(),
            engines={name: engine.port for name, engine in engines.items()},
            pool={"routing": {"policy": Policy.MEASURED_RATE.value}},
        )
        stack.enter_context(stage.serving(gateway, ground))
        engine = engines[_CHANGED]
        changes = (lambda: engine.inject(drift)), (lambda: engine.inject({**drift, "magnitude": 0.0}))
        traffic = Traffic(gateway.port, model=library.load(PRESET).model.name, seed=seed, first=streams * 1_000_000)
        slow_s, well_s = uvloop.run(_story(gateway, traffic, streams=streams, changes=changes))
    return Followed(streams=streams, slow_s=slow_s, well_s=well_s)


async def _story(
    gateway: Gateway, traffic: Traffic, *, streams: int, changes: tuple[Callable[[], None], Callable[[], None]]
) -> tuple[float | None, float | None]:
    slow, mend = changes
    async with asyncio.TaskGroup() as group:
        running = group.create_task(traffic.closed(streams))
        await asyncio.sleep(_SETTLE_S)
        await asyncio.to_thread(slow)
        slow_s = await _until(gateway, lambda share: share < _SLOW_BELOW, streams=streams)
        say(f"    {streams} streams: slow, followed after {_shown(slow_s)} s")
        await asyncio.sleep(_SETTLE_S)
        await asyncio.to_thread(mend)
        well_s = await _until(gateway, lambda share: share > _WELL_ABOVE, streams=streams)
        say(f"    {streams} streams: well again, followed after {_shown(well_s)} s")
        running.cancel()
    return slow_s, well_s


async def _until(gateway: Gateway, reached: Callable[[float], bool], *, streams: int) -> float | None:
    """Seconds until the changed engine's share of the streams is ``reached``, on average over a few looks."""
    from_s = time.monotonic()
    seen: deque[float] = deque(maxlen=_POLLS)
    while time.monotonic() < from_s + _WITHIN_S:
        page = await asyncio.to_thread(gateway.fetched, "/admin/v1/backends")
        seen += [it["in_flight"] / streams for it in json.loads(page)["items"] if it["name"] == _CHANGED]
        if len(seen) == _POLLS and reached(fmean(seen)):
            return time.monotonic() - from_s
        await asyncio.sleep(_POLL_S)
    return None


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"


def markdown(found: list[Followed]) -> str:
    """The table for people."""
    header = ["streams", "slow engine followed after, s", "well again followed after, s"]
    return table(header, [[str(it.streams), _shown(it.slow_s), _shown(it.well_s)] for it in found])
