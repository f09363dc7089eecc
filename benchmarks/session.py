"""A whole run: start everything, measure in alternating order, end everything.

Owns the `Run` record while it is being filled. All relays stay up for the whole run and are idle while another is
measured; the order turns around every round, so that a slow drift of the machine meets all of them alike.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks import launch, machine, measure, micro_tap, pacekeeper, prompts, relays, workers
from benchmarks.measure import Bystanders, StreamLoad
from benchmarks.plan import Plan
from benchmarks.relays import Relay, Target
from benchmarks.results import CostRound, PacePair, Run

DIRECT = "direct"
_TAP_READS = 20_000
_TAP_REPEATS = 7


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of the relay under test, of the client, and of the engine (which may share the client's)."""

    relay: int
    load: int
    engine: int


@contextmanager
def everything(chosen: Sequence[Relay], run: Run, *, cores: Cores) -> Iterator[tuple[list[Target], Bystanders]]:
    """Start the mock engine and every relay that can be started; the engine itself is the first target."""
    os.sched_setaffinity(0, {cores.load})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pacekeeper-bench-")))
        [engine_port] = launch.free_ports(1)
        log = folder / "engine.log"
        command = [sys.executable, "-m", "benchmarks.mock_engine", "--port", str(engine_port)]
        engine = stack.enter_context(launch.running(command, log, core=cores.engine))
        launch.wait_until_answering(engine, engine_port, log=log)
        targets = [Target(name=DIRECT, port=engine_port)]
        for relay in chosen:
            run.notes[relay.name] = relay.note
            reason = relay.missing()
            if reason is None:
                try:
                    begun = relays.started(relay, folder, engine_port=engine_port, core=cores.relay)
                    targets.append(stack.enter_context(begun))
                except launch.NotStarted as failure:
                    reason = f"did not start: {failure}"
            if reason is not None:
                run.missing[relay.name] = reason
                say(f"{relay.name}: MISSING, {reason}")
        yield (
            targets,
            Bystanders(pids={engine.pid: cores.engine, os.getpid(): cores.load}, relay_core=cores.relay),
        )


def say(text: str) -> None:
    """Progress, for the person who waits."""
    print(text, file=sys.stderr, flush=True)


class Session:
    """Measures all parts of a plan against started targets, and writes what it finds into the run's record."""

    def __init__(self, plan: Plan, targets: Sequence[Target], *, bystanders: Bystanders, run: Run) -> None:
        self._plan = plan
        self._engine, *self._relays = targets
        self._bystanders = bystanders
        self._run = run
        self._begun_s = time.monotonic()

    def _in_turn(self, targets: Sequence[Target], *, rounds: int) -> Iterator[tuple[int, Target]]:
        """Round numbers and targets: forwards, backwards, forwards, ... until the time is up."""
        for number in range(rounds):
            for target in targets if number % 2 == 0 else reversed(targets):
                if self._elapsed_s() > self._plan.limit_s:
                    self._run.warnings.append(f"time limit of {self._plan.limit_s:g} s reached: parts were left out")
                    return
                yield number, target

    async def measure(self, parts: Sequence[str]) -> None:
        """Run the named parts (`PARTS`) in their order."""
        for name in parts:
            say(f"{self._elapsed_s():5.0f} s  {name}")
            try:
                await PARTS[name](self)
            except (launch.NotStarted, OSError, TimeoutError) as failure:
                # What the other parts found is worth keeping.
                self._run.warnings.append(f"{name} broke off: {type(failure).__name__} {failure}")
        self._run.wall_s = self._elapsed_s()
        self._run.warnings += machine.warnings(self._run)

    async def cost(self) -> None:
        """P1 to P3: CPU per event and per short request; both kinds in every round."""
        plan = self._plan
        load = StreamLoad(
            level=plan.streams,
            pace_ms=plan.pace_ms,
            grid_ms=plan.grid_ms,
            window_s=plan.stream_window_s,
            include_usage=plan.include_usage,
        )
        for number, target in self._in_turn(self._relays, rounds=plan.rounds):
            streams = partial(
                measure.stream_cost, target, load, bystanders=self._bystanders, kind="stream", number=number
            )
            await self._undisturbed(streams)
            requests = partial(
                measure.request_cost,
                target,
                connections=plan.connections,
                tokens=plan.request_tokens,
                window_s=plan.request_window_s,
                bystanders=self._bystanders,
                number=number,
            )
            await self._undisturbed(requests)

    async def _undisturbed(self, window: Callable[[], Coroutine[Any, Any, CostRound]]) -> None:
        """Measure, and once more when other processes got in the way; both windows are kept in the record."""
        cost = await window()
        self._run.costs.append(cost)
        if machine.disturbed(cost) and self._elapsed_s() < self._plan.repeat_until_s:
            self._run.costs.append(await window())

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun_s

    async def latency(self) -> None:
        """P4: time to first event and lag of events, direct and through each relay, at several levels."""
        plan = self._plan
        for level in plan.latency_levels:
            load = StreamLoad(level=level, pace_ms=plan.pace_ms, grid_ms=plan.grid_ms, window_s=plan.latency_window_s)
            able = [one for one in (self._engine, *self._relays) if one.most_streams >= level]
            for number, target in self._in_turn(able, rounds=plan.latency_rounds):
                self._run.latencies.append(await measure.latency(target, load, number=number))

    async def pace(self) -> None:
        """P5: the token rate of a single stream through the gateway, over that of the same stream direct."""
        plan = self._plan
        gateway = [target for target in self._relays if target.name == pacekeeper.NAME]
        for number, target in self._in_turn(gateway, rounds=plan.pace_pairs):
            rates = [
                await measure.single_stream_tps(one, tokens=plan.pace_tokens, step_ms=plan.pace_step_ms)
                for one in (self._engine, target)
            ]
            self._run.paces.append(
                PacePair(relay=target.name, number=number, direct_tps=rates[0], relayed_tps=rates[1])
            )

    async def memory(self) -> None:
        """P6: memory at rest after the cost rounds, and per open idle stream."""
        for _, target in self._in_turn(self._relays, rounds=1):
            self._run.memories.append(await measure.idle_memory(target, streams=self._plan.idle_streams))

    async def tap(self) -> None:
        """P7: the tap alone, in this process."""
        plain = next(case for case in micro_tap.CASES if case.name == "chat content")
        self._run.tap_us += [micro_tap.cost_per_chunk_us(plain, _TAP_READS) for _ in range(_TAP_REPEATS)]

    async def prompts(self) -> None:
        """P10: what a prompt of 1 MiB takes longer than direct, and how long it stalls a stream beside it."""
        plan = self._plan
        for shape, history in prompts.SHAPES.items():
            load = prompts.PromptLoad(shape=shape, history=tuple(history), count=plan.prompts)
            for number, target in self._in_turn([self._engine, *self._relays], rounds=plan.prompt_rounds):
                self._run.prompts.append(await prompts.beside_a_stream(target, load, number=number))

    async def workers(self) -> None:
        """P9: throughput with several workers over that of one; a set-up of its own, with cores of its own."""
        plan = self._plan
        # The harness has pinned itself for the other parts; every core that there is may be used here.
        pinned = os.sched_getaffinity(0)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        try:
            found = await workers.throughput(
                plan.worker_counts, plan.worker_load, cores=machine.cores_apart(), unpinned=plan.unpinned
            )
        finally:
            os.sched_setaffinity(0, pinned)
        if plan.unpinned and found.rounds:
            self._run.warnings.append("workers shared cores (--unpinned): their figures mean nothing")
        self._run.workers += found.rounds
        self._run.skipped |= found.skipped

    async def scale(self) -> None:
        """P8: CPU per event with few and with many slow streams, through the gateway and the reference.

        All streams step at once: spread out, few streams would mostly show what it costs to be woken for one event.
        """
        plan = self._plan
        compared = [target for target in self._relays if target.name in {pacekeeper.NAME, "nginx"}]
        for level in plan.scale_levels:
            load = StreamLoad(
                level=level, pace_ms=plan.scale_pace_ms, grid_ms=plan.scale_pace_ms, window_s=plan.stream_window_s
            )
            for number, target in self._in_turn(compared, rounds=plan.scale_rounds):
                window = partial(
                    measure.stream_cost, target, load, bystanders=self._bystanders, kind="scale", number=number
                )
                await self._undisturbed(window)


PARTS: Mapping[str, Callable[[Session], Coroutine[Any, Any, None]]] = MappingProxyType(
    {
        "cost": Session.cost,
        "memory": Session.memory,
        "latency": Session.latency,
        "pace": Session.pace,
        "scale": Session.scale,
        "tap": Session.tap,
        "prompts": Session.prompts,
        "workers": Session.workers,
    }
)
