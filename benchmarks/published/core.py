"""What the simulator itself can carry: many streams at a pace on one core, and decode steps a second in virtual time.

The engine alone, without the gateway: its processes are pinned to one core and the client to another. The pace comes
from a shipped deployment run so many times faster that each of its streams gets what is wanted.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import uvloop

from benchmarks import procstat
from benchmarks.published import stage
from benchmarks.published.streams import PROMPT_TOKENS, connected, forced
from gateway.simulator import library
from gateway.simulator.engine import SimEngine
from gateway.simulator.physics import decode_parts
from gateway.simulator.request import SimRequest

PRESET: Final = "minimax-m2.5-fp8"  # the one with room for the context of so many long answers
STREAMS: Final = 256
TPS: Final = 40.0
_RAMP_S: Final = 5.0
_TAIL_S: Final = 3.0
_ABOVE: Final = 1.01  # aimed at a little more than is wanted, since the pace is noisy
_VIRTUAL_TOKENS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What the streams got over the window, and what share of its core the engine took for it."""

    slowest_tps: float
    median_tps: float
    core_share: float
    cpu_us_per_token: float


def speed_for(*, streams: int, tps: float, context_tokens: float) -> float:
    """How many times faster than real the preset must run to give each of so many streams ``tps``."""
    preset = library.load(PRESET)
    machine = SimEngine(preset, seed=0, environment={}, arguments=(), started_at=0.0)
    step_s = decode_parts(preset, machine.allreduce, streams).total_s()
    return tps * (step_s + preset.pace.context_s * context_tokens * streams)


def carried(folder: Path, *, cores: tuple[int, int], window_s: float) -> Carried:
    """256 streams at 40 tokens a second from one engine on the first core, read by this process on the second."""
    context = PROMPT_TOKENS + TPS * (_RAMP_S + window_s / 2)
    speed = speed_for(streams=STREAMS, tps=TPS * _ABOVE, context_tokens=context)
    start = stage.EngineStart(preset=PRESET, speed=speed, is_warm=True)
    with stage.engine(folder, start, core=cores[0]) as engine, _on(cores[1]):
        return uvloop.run(_carried(engine, window_s=window_s))


@contextmanager
def _on(core: int) -> Iterator[None]:
    """This process on one core, for the length of the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def _carried(engine: stage.Engine, *, window_s: float) -> Carried:
    """Open all streams, and count what each gets over the window: one event is one token, as no answer ends in it."""
    model = library.load(PRESET).model.name
    tokens = round(TPS * (_RAMP_S + window_s + _TAIL_S))
    streams = await connected(engine.port, STREAMS)
    asking = [asyncio.create_task(one.ask(forced(model, tokens, number=at))) for at, one in enumerate(streams)]
    try:
        await asyncio.sleep(_RAMP_S)
        pids = procstat.tree(engine.pid)
        before, seen, from_s = procstat.look(pids), [one.events for one in streams], time.monotonic()
        await asyncio.sleep(window_s)
        after, took_s = procstat.look(pids), time.monotonic() - from_s
        rates = [(one.events - events) / took_s for one, events in zip(streams, seen, strict=True)]
        if broken := [task for task in asking if task.done()]:
            broken[0].result()
            raise AssertionError("an answer ended in the window")
    finally:
        for task in asking:
            task.cancel()
        for one in streams:
            one.close()
    share = sum((after.processes[pid] - before.processes[pid]).ran_ns for pid in pids) / 1e9 / took_s
    return Carried(
        slowest_tps=min(rates),
        median_tps=median(rates),
        core_share=share,
        cpu_us_per_token=share / sum(rates) * 1e6,
    )


def virtual_steps_per_s(preset: str, *, streams: int) -> float:
    """Decode steps of the engine machine a second of this processor, with so many sequences in each."""
    machine = SimEngine(library.load(preset), seed=0, environment={}, arguments=(), started_at=0.0)
    tokens = _VIRTUAL_TOKENS // streams
    for number in range(streams):
        machine.submit(SimRequest(prompt_tokens=10, max_tokens=tokens, ignore_eos=True, seed=number), 0.0)
    began_s, steps = time.process_time(), 0
    while (due := machine.next_at()) is not None:
        machine.step(due)
        steps += 1
    return steps / (time.process_time() - began_s)
