"""Throughput with several workers (P9): each worker, engine and client process on a core of its own, all kept busy.

The gateway is started anew with each number of workers, with several engines behind it and several processes of load
before it, so that neither of them is the limit; how busy each of them was stands beside the throughput. Two loads:
short whole answers in a closed loop, more than the workers can do, and streams that keep them nearly busy. A machine
without the cores is told so, and nothing is measured there unless it is asked for (`--unpinned`, to try the harness).
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import launch, pacekeeper, procstat
from benchmarks.load_process import Board
from benchmarks.plan import WorkersLoad
from benchmarks.results import WorkersRound

# An engine takes 9 us of its core for a chunk, a client 6 to 7, a worker more than 20. Two for one would do; more
# leave room for uneven shares of the connections.
_ENGINES_EACH = 0.5
_CLIENTS_EACH = 0.375
_READY_S = 20.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Which core each process has; `rest` is that of control, supervisor and the harness."""

    workers: tuple[int, ...]
    engines: tuple[int, ...]
    clients: tuple[int, ...]
    rest: int


@dataclass(slots=True)
class Found:
    """What was measured, and what was left out and why."""

    rounds: list[WorkersRound] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def wanted(workers: int) -> tuple[int, int]:
    """How many engines and clients keep that many workers busy."""
    return max(1, math.ceil(workers * _ENGINES_EACH)), max(1, math.ceil(workers * _CLIENTS_EACH))


def layout(workers: int, cores: Sequence[int], *, unpinned: bool = False) -> Layout | str:
    """A core for everybody, or why there is none. `unpinned`: any core does for anybody, to try the harness."""
    engines, clients = wanted(workers)
    needed = workers + engines + clients + 1
    if unpinned:
        cores = [cores[number % len(cores)] for number in range(needed)]
    if len(cores) < needed:
        return (
            f"needs {needed} cores ({workers} for workers, {engines} for engines, {clients} for clients, 1 for the "
            f"rest), there are {len(cores)}"
        )
    return Layout(
        workers=tuple(cores[:workers]),
        engines=tuple(cores[workers : workers + engines]),
        clients=tuple(cores[workers + engines : needed - 1]),
        rest=cores[needed - 1],
    )


async def throughput(
    counts: Iterable[int], load: WorkersLoad, *, cores: Sequence[int], unpinned: bool = False
) -> Found:
    """Measure every number of workers that the cores allow, forwards and backwards in turn."""
    found = Found()
    layouts: dict[int, Layout] = {}
    for workers in counts:
        placed = layout(workers, cores, unpinned=unpinned)
        if isinstance(placed, str):
            found.skipped[f"P9 with {workers} workers"] = placed
        else:
            layouts[workers] = placed
    if len(layouts) < 2:
        return found  # one number of workers alone says nothing about how they scale
    for number in range(load.rounds):
        for workers in sorted(layouts, reverse=bool(number % 2)):
            with _gateway(layouts[workers], workers) as stage:
                for kind in ("streams", "requests"):
                    found.rounds.append(await _window(stage, load, kind=kind, number=number))
    return found


@dataclass(frozen=True, slots=True)
class _Stage:
    """A started gateway with its engines."""

    layout: Layout
    folder: Path
    port: int
    workers: tuple[int, ...]
    rest: tuple[int, ...]
    engines: tuple[int, ...]


@contextmanager
def _gateway(placed: Layout, workers: int) -> Iterator[_Stage]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pacekeeper-workers-")))
        os.sched_setaffinity(0, {placed.rest})
        ports = launch.free_ports(len(placed.engines) + 2)
        engines = []
        for core, port in zip(placed.engines, ports, strict=False):
            log = folder / f"engine-{port}.log"
            command = [sys.executable, "-m", "benchmarks.mock_engine", "--port", str(port)]
            engine = stack.enter_context(launch.running(command, log, core=core))
            launch.wait_until_answering(engine, port, log=log)
            engines.append(engine.pid)
        clients, operators = ports[-2:]
        command = pacekeeper.command(
            folder, engine_ports=ports[: len(engines)], ports=(clients, operators), workers=workers
        )
        log = folder / "gateway.log"
        gateway = stack.enter_context(launch.running(command, log, core=None))
        launch.wait_until_answering(gateway, clients, log=log)
        roles = _settled_roles(gateway.pid, workers)
        busy = [pid for pid, role in roles.items() if role == "worker"]
        for pid, core in zip(busy, placed.workers, strict=True):
            pin(pid, core)
        rest = [pid for pid in roles if pid not in busy]
        for pid in rest:
            pin(pid, placed.rest)
        yield _Stage(placed, folder, clients, tuple(busy), tuple(rest), tuple(engines))


def _settled_roles(root: int, workers: int) -> dict[int, str]:
    """The gateway's processes once every worker is there."""
    deadline_s = time.monotonic() + _READY_S
    while True:
        roles = {pid: pacekeeper.role(procstat.command_line(pid)) for pid in procstat.tree(root)}
        if sum(role == "worker" for role in roles.values()) == workers:
            return roles
        if time.monotonic() > deadline_s:
            raise launch.NotStarted(f"not {workers} workers but {roles}")
        time.sleep(0.1)


def pin(pid: int, core: int) -> None:
    """Put a process with all its threads on one core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


async def _window(stage: _Stage, load: WorkersLoad, *, kind: str, number: int) -> WorkersRound:
    """One load, from the moment in which all its connections are busy."""
    path = stage.folder / f"board-{kind}-{number}"
    rows = len(stage.layout.clients)
    board = Board(path, rows)
    each = (load.streams if kind == "streams" else load.connections) * len(stage.workers)
    tokens = load.tokens if kind == "streams" else load.request_tokens
    with ExitStack() as stack:
        pids = []
        for row, core in enumerate(stage.layout.clients):
            share = each // rows + (1 if row < each % rows else 0)
            command = [sys.executable, "-m", "benchmarks.load_process", "--port", str(stage.port), "--kind", kind]
            command += ["--connections", str(share), "--tokens", str(tokens), "--pace-ms", f"{load.pace_ms:g}"]
            command += ["--board", str(path), "--row", str(row), "--rows", str(rows)]
            log = stage.folder / f"{kind}-{number}-{row}.log"
            pids.append(stack.enter_context(launch.running(command, log, core=core)).pid)
        await _connected(board, each)
        await asyncio.sleep(load.ramp_s)
        watched = (*stage.workers, *stage.rest, *stage.engines, *pids)
        begin_s, begin, before = time.monotonic(), board.total(), procstat.look(watched)
        await asyncio.sleep(load.window_s)
        end_s, end, after = time.monotonic(), board.total(), procstat.look(watched)
    window_s = end_s - begin_s

    def busy(pid: int) -> float:
        return (after.processes[pid] - before.processes[pid]).ran_ns / 1e9 / window_s

    column = 0 if kind == "streams" else 1
    return WorkersRound(
        workers=len(stage.workers),
        kind=kind,
        number=number,
        per_s=(end[column] - begin[column]) / window_s,
        worker_busy=[busy(pid) for pid in stage.workers],
        rest_busy=sum(map(busy, stage.rest)),
        engine_busy=_busiest(busy, stage.engines),
        client_busy=_busiest(busy, pids),
        failures=end[2],
    )


def _busiest(busy: Callable[[int], float], pids: Iterable[int]) -> float:
    return max(map(busy, pids))


async def _connected(board: Board, connections: int) -> None:
    deadline_s = time.monotonic() + _READY_S
    while board.total()[3] < connections:
        if time.monotonic() > deadline_s:
            raise launch.NotStarted(f"{board.total()[3]} of {connections} connections after {_READY_S:g} s")
        await asyncio.sleep(0.05)
