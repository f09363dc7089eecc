"""One measurement at a time: a load against one target, watched from the first to the last moment of its window.

The windows lie inside the steady state: all streams have begun, none has ended. CPU is read at the window's edges in
the same breath as the counters it is divided by.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks import procstat
from benchmarks.figures import percentile
from benchmarks.load import AnswerClient, ChatRequest, Client, StreamClient, Tally, chat_request, connect
from benchmarks.relays import Target
from benchmarks.results import CostRound, LatencyRound, MemoryFigure

_RAMP_S = 0.5
_SETTLE_S = 0.3
_TAIL_S = 0.2
_GRACE_S = 40.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_KEPT_FAILURES = 5


@dataclass(frozen=True, slots=True)
class Bystanders:
    """The harness's own processes, each with its core, and the core of the relay under test."""

    pids: Mapping[int, int]
    relay_core: int

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores of the run."""
        return tuple(sorted({self.relay_core, *self.pids.values()}))


@dataclass(frozen=True, slots=True)
class _Edge:
    at_s: float
    units: int
    sample: procstat.TreeSample


class _Window:
    """Two looks at the same processes, and what lies between them."""

    def __init__(self, target: Target, bystanders: Bystanders) -> None:
        self._roles = target.roles()
        self._bystanders = bystanders
        self._edges: list[_Edge] = []

    def edge(self, units: int) -> None:
        """Look now; `units` is the count of work done so far."""
        sample = procstat.look((*self._roles, *self._bystanders.pids))
        self._edges.append(_Edge(at_s=time.monotonic(), units=units, sample=sample))

    def cost(self, kind: str, tally: Tally, *, relay: str, level: int, number: int) -> CostRound:
        """The account of the window."""
        begin, end = self._edges
        window_s = end.at_s - begin.at_s
        units = end.units - begin.units
        spent = {pid: end.sample.processes[pid] - before for pid, before in begin.sample.processes.items()}
        by_role: dict[str, float] = {}
        for pid, role in self._roles.items():
            by_role[role] = by_role.get(role, 0.0) + spent[pid].ran_ns / 1000 / max(1, units)
        ran_ns = sum(spent[pid].ran_ns for pid in self._roles)
        waited_ns = sum(spent[pid].waited_ns for pid in self._roles)
        load_ns = sum(spent[pid].ran_ns for pid in self._bystanders.pids)
        by_core = dict.fromkeys(self._bystanders.pids.values(), 0)
        for pid, core in self._bystanders.pids.items():
            by_core[core] += spent[pid].ran_ns
        busy_s = sum(
            (end.sample.cores[core] - begin.sample.cores[core]).busy * _TICK_S for core in self._bystanders.cores
        )
        return CostRound(
            relay=relay,
            kind=kind,
            level=level,
            number=number,
            window_s=window_s,
            units=units,
            cpu_us=by_role,
            waited_share=waited_ns / ran_ns if ran_ns else 0.0,
            load_core_busy=max(by_core.values()) / 1e9 / window_s,
            foreign_share=(busy_s - (ran_ns + load_ns) / 1e9) / window_s,
            lag_p50_us=percentile(tally.lag_us, 0.5),
            lag_p99_us=percentile(tally.lag_us, 0.99),
            failures=tally.failures[:_KEPT_FAILURES],
        )


@contextmanager
def without_collections() -> Iterator[None]:
    """A collection in the client would show as a late event in every stream."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Countdown:
    """Tells when all of a number of requests have ended."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._done = asyncio.Event()

    def one(self) -> None:
        """One has ended."""
        self._left -= 1
        if self._left == 0:
            self._done.set()

    async def all(self, timeout_s: float) -> None:
        """Wait for the last; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._done.wait()


def _close(clients: Sequence[Client]) -> None:
    for client in clients:
        client.close()


async def _finish(countdown: _Countdown, tally: Tally) -> None:
    try:
        await countdown.all(_GRACE_S)
    except TimeoutError:
        tally.failures.append(f"streams still open {_GRACE_S:g} s after their end")


async def _start_spread(clients: Sequence[StreamClient], request: ChatRequest, *, countdown: _Countdown) -> None:
    """Begin a stream on each client, evenly over the ramp so that their steps do not fall together."""
    begin_s = time.monotonic()
    for index, client in enumerate(clients):
        client.send(request, countdown.one)
        ahead_s = begin_s + (index + 1) * _RAMP_S / len(clients) - time.monotonic()
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)


async def _begun(done: Callable[[], int], count: int) -> None:
    """Wait until there is one event or answer for each of `count` clients: a slow relay takes longer than the ramp."""
    until_s = time.monotonic() + _GRACE_S
    while done() < count and time.monotonic() < until_s:  # noqa: ASYNC110  (counted there)
        await asyncio.sleep(0.01)
    await asyncio.sleep(_SETTLE_S)


def _tokens_for(duration_s: float, pace_ms: float) -> int:
    return math.ceil(duration_s * 1000 / pace_ms) + 4


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """A steady number of streams, one token every `pace_ms`."""

    level: int
    pace_ms: float
    grid_ms: float
    window_s: float
    include_usage: bool = False

    def request(self) -> ChatRequest:
        """A stream that begins in the ramp and ends after the window."""
        tokens = _tokens_for(_RAMP_S + _SETTLE_S + self.window_s + _TAIL_S, self.pace_ms)
        return chat_request(
            tokens=tokens, stream=True, pace_ms=self.pace_ms, grid_ms=self.grid_ms, include_usage=self.include_usage
        )


async def stream_cost(target: Target, load: StreamLoad, *, bystanders: Bystanders, kind: str, number: int) -> CostRound:
    """CPU per relayed event with a steady number of streams."""
    tally = Tally(timing=False, lenient=not target.faithful)
    clients = await connect(StreamClient, target.port, count=load.level, tally=tally)
    countdown = _Countdown(load.level)
    with without_collections():
        await _start_spread(clients, load.request(), countdown=countdown)
        await _begun(lambda: tally.events, load.level)
        window = _Window(target, bystanders)
        tally.timing = True
        window.edge(tally.events)
        await asyncio.sleep(load.window_s)
        window.edge(tally.events)
        tally.timing = False
        await _finish(countdown, tally)
    _close(clients)
    return window.cost(kind, tally, relay=target.name, level=load.level, number=number)


async def request_cost(
    target: Target, *, connections: int, tokens: int, window_s: float, bystanders: Bystanders, number: int
) -> CostRound:
    """CPU per short whole answer: every connection sends its next request when the last is answered."""
    tally = Tally(timing=False, lenient=not target.faithful)
    clients = await connect(AnswerClient, target.port, count=connections, tally=tally)
    request = chat_request(tokens=tokens, stream=False)
    stopping = False
    countdown = _Countdown(connections)

    def begin(client: AnswerClient) -> None:
        if stopping or len(tally.failures) > _KEPT_FAILURES:
            countdown.one()
        else:
            client.send(request, lambda: begin(client))

    with without_collections():
        for client in clients:
            begin(client)
        await _begun(lambda: tally.answers, connections)
        window = _Window(target, bystanders)
        window.edge(tally.answers)
        await asyncio.sleep(window_s)
        window.edge(tally.answers)
        stopping = True
        await _finish(countdown, tally)
    _close(clients)
    return window.cost("request", tally, relay=target.name, level=connections, number=number)


async def latency(target: Target, load: StreamLoad, *, number: int) -> LatencyRound:
    """First-event times of short probe streams, one after the other, beside `level - 1` steady streams."""
    background = Tally(timing=False, lenient=not target.faithful)
    steady = await connect(StreamClient, target.port, count=load.level - 1, tally=background)
    probes = Tally(lenient=not target.faithful)
    [prober] = await connect(StreamClient, target.port, count=1, tally=probes)
    probe = chat_request(tokens=5, stream=True, pace_ms=1)
    ended = asyncio.Event()
    countdown = _Countdown(max(1, len(steady)))
    with without_collections():
        await _start_spread(steady, load.request(), countdown=countdown)
        await asyncio.sleep(_SETTLE_S)
        background.timing = True
        until_s = time.monotonic() + load.window_s
        while time.monotonic() < until_s and not probes.failures:
            ended.clear()
            prober.send(probe, ended.set)
            async with asyncio.timeout(_GRACE_S):
                await ended.wait()
        background.timing = False
        if steady:
            await _finish(countdown, background)
    _close([*steady, prober])
    lags = probes.lag_us + background.lag_us
    return LatencyRound(
        relay=target.name,
        level=load.level,
        number=number,
        ttft_p50_us=percentile(probes.first_event_us, 0.5),
        ttft_p99_us=percentile(probes.first_event_us, 0.99),
        probes=len(probes.first_event_us),
        lag_p50_us=percentile(lags, 0.5),
        lag_p99_us=percentile(lags, 0.99),
        lags=len(lags),
        failures=(probes.failures + background.failures)[:_KEPT_FAILURES],
    )


async def single_stream_tps(target: Target, *, tokens: int, step_ms: float) -> float:
    """Tokens a second of one stream alone, from its first to its last event; 0 when it failed."""
    tally = Tally()
    [client] = await connect(StreamClient, target.port, count=1, tally=tally)
    countdown = _Countdown(1)
    with without_collections():
        client.send(chat_request(tokens=tokens, stream=True, pace_ms=step_ms), countdown.one)
        await _finish(countdown, tally)
    _close([client])
    elapsed_us = sum(tally.gap_us)
    return 0.0 if tally.failures or not elapsed_us else (tokens - 1) / (elapsed_us / 1e6)


async def idle_memory(target: Target, *, streams: int) -> MemoryFigure:
    """Memory by role at rest, and the resident bytes that each of `streams` open, silent streams adds."""
    roles = target.roles()
    rest = {pid: procstat.memory(pid) for pid in roles}
    tally = Tally(timing=False)
    clients = await connect(StreamClient, target.port, count=streams, tally=tally)
    request = chat_request(tokens=40, stream=True, pace_ms=60_000)
    countdown = _Countdown(streams)
    for client in clients:
        client.send(request, countdown.one)
    await _begun(lambda: tally.events, streams)
    opened = {pid: procstat.memory(pid) for pid in roles}
    _close(clients)
    # The relay and the engine need a moment to see the clients leave before the next measurement.
    await asyncio.sleep(0.5)
    grown = sum(opened[pid].resident_bytes - rest[pid].resident_bytes for pid in roles)
    by_role: dict[str, procstat.ProcessMemory] = {}
    for pid, role in roles.items():
        by_role[role] = by_role.get(role, procstat.ProcessMemory()) + rest[pid]
    return MemoryFigure(
        relay=target.name,
        resident_bytes={role: memory.resident_bytes for role, memory in by_role.items()},
        proportional_bytes={role: memory.proportional_bytes for role, memory in by_role.items()},
        idle_streams=streams,
        # Each stream has shown its role event, or it was not open and must not count.
        bytes_per_idle_stream=grown / streams if tally.events == streams else None,
    )
