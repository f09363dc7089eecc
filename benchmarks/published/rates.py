"""The two figures of a deployment, as the gateway measured them: one stream alone, and many at once.

Rates come back divided by the engine's speed, so that compressed time gives the same figures as real time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from benchmarks.published.stage import Gateway
from benchmarks.published.streams import Crowd, connected, forced

_STEADY_WITHIN_S: Final = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of ``model``: answers of ``tokens`` tokens, from an engine ``speed`` times faster than real."""

    model: str
    tokens: int
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Answers one after the other: the middle one's decode rate, and the mean share of reasoning in their tokens."""

    decode_tps: float
    reasoning_share: float


async def alone(gateway: Gateway, load: Load, *, count: int) -> Alone:
    """Ask ``count`` times, one stream at a time; what the gateway recorded of them."""
    [stream] = await connected(gateway.port, 1)
    try:
        for number in range(count):
            await stream.ask(forced(load.model, load.tokens, number=number))
    finally:
        stream.close()
    summaries = [record["summary"] for record in await asyncio.to_thread(gateway.records, count)]
    if wrong := [summary for summary in summaries if summary["completion_tokens"] != load.tokens]:
        raise AssertionError(f"not {load.tokens} tokens: {wrong[0]}")
    return Alone(
        decode_tps=median(summary["decode_tps"] for summary in summaries) / load.speed,
        reasoning_share=fmean(summary["reasoning_tokens"] for summary in summaries) / load.tokens,
    )


async def crowded(gateway: Gateway, load: Load, *, streams: int, window_s: float) -> float:
    """Tokens a second of so many streams in a closed loop: those of the answers that ended in a window.

    ``window_s`` is on the engine's clock.  With streams of every age alike answers end all the time; when each did is
    in the gateway's record of it, so that the edges of the window are sharp whenever the records come.
    """
    crowd = Crowd(await connected(gateway.port, streams), model=load.model, tokens=load.tokens)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(crowd.run())
        async with asyncio.timeout(_STEADY_WITHIN_S):
            await crowd.is_steady.wait()
        from_wall = time.time()
        await asyncio.sleep(window_s / load.speed)
        until_wall = time.time()
        ended = await asyncio.to_thread(gateway.ended, from_wall, until_wall)
        running.cancel()
    tokens: int = sum(record["summary"]["completion_tokens"] for record in ended)
    return tokens / (until_wall - from_wall) / load.speed
