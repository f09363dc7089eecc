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
    """Tokens a second of so many streams in a closed loop: the gateway's own counter over a window of the steady state.

    ``window_s`` is on the engine's clock. The counter moves when an answer ends; with streams of every age alike it
    moves all the time.
    """
    crowd = Crowd(await connected(gateway.port, streams), model=load.model, tokens=load.tokens)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(crowd.run())
        async with asyncio.timeout(_STEADY_WITHIN_S):
            await crowd.is_steady.wait()
        from_s, before = await _counted(gateway)
        await asyncio.sleep(window_s / load.speed)
        until_s, after = await _counted(gateway)
        running.cancel()
    return (after - before) / (until_s - from_s) / load.speed


async def _counted(gateway: Gateway) -> tuple[float, int]:
    """The instant in the middle of asking for the counter, and what it showed."""
    asked_s = time.monotonic()
    tokens = await asyncio.to_thread(gateway.generated_tokens)
    return (asked_s + time.monotonic()) / 2, tokens
