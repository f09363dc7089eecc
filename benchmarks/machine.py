"""What machine a run took place on, and whether its figures can be believed.

The guards only warn: a figure is never changed or left out because of them.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import timeit
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.results import CostRound, Machine, Run

_LOAD_CORE_LIMIT = 0.9
_FOREIGN_LIMIT_CORES = 0.1
_WAITED_LIMIT = 0.1
_WORKER_BUSY = 0.9


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown"


def _revision() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def cores_apart() -> list[int]:
    """The cores that this process may use: a hardware thread of each physical core, then their siblings."""
    allowed = sorted(os.sched_getaffinity(0))
    first: list[int] = []
    siblings: list[int] = []
    seen: set[str] = set()
    for core in allowed:
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        group = path.read_text().strip() if path.exists() else str(core)
        (siblings if group in seen else first).append(core)
        seen.add(group)
    return first + siblings


def _physical_cores() -> int:
    paths = [
        Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list") for core in os.sched_getaffinity(0)
    ]
    return len({path.read_text() for path in paths if path.exists()})


def _call_ns() -> float:
    """What a call of a small function costs: interpreters of one version differ by half, by how they were built."""

    def callee(given: int) -> int:
        return given

    count = 100_000
    return min(timeit.repeat(lambda: callee(1), number=count, repeat=5)) / count * 1e9


def describe() -> Machine:
    """This machine, now."""
    return Machine(
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        cpu_model=_cpu_model(),
        cores=os.cpu_count() or 1,
        kernel=platform.release(),
        python=f"{platform.python_version()} (a call takes {_call_ns():.0f} ns)",
        revision=_revision(),
        load_average=os.getloadavg()[0],
        cores_apart=_physical_cores(),
    )


def disturbed(cost: CostRound) -> bool:
    """True when processes outside the run took a notable part of its cores."""
    return cost.foreign_share > _FOREIGN_LIMIT_CORES


def quietest(costs: Sequence[CostRound]) -> list[CostRound]:
    """One window for each relay, kind, level and round: the least disturbed where one was measured twice.

    The choice looks at what else ran on the machine and never at the cost itself, so it favours no relay.
    """
    best: dict[tuple[str, str, int, int], CostRound] = {}
    for cost in costs:
        key = (cost.relay, cost.kind, cost.level, cost.number)
        if key not in best or cost.foreign_share < best[key].foreign_share:
            best[key] = cost
    return list(best.values())


def _summed(doubt: str, worth: Mapping[str, float], *, limit: float) -> list[str]:
    """One line for all windows whose figure is over the limit, or none."""
    over = {where: value for where, value in worth.items() if value > limit}
    if not over:
        return []
    worst = max(over, key=lambda where: over[where])
    return [f"{len(over)} of {len(worth)} windows: {doubt} (worst {over[worst]:.2f}, {worst})"]


def warnings(run: Run) -> list[str]:
    """Every doubt about a run: one line for each sort of disturbance, one for each failure."""
    windows = {f"{cost.relay}, {cost.kind} x{cost.level}, round {cost.number}": cost for cost in quietest(run.costs)}
    found = _summed(
        f"other processes took more than {_FOREIGN_LIMIT_CORES:g} of the run's cores",
        {where: cost.foreign_share for where, cost in windows.items()},
        limit=_FOREIGN_LIMIT_CORES,
    )
    found += _summed(
        f"the relay waited for its core more than {_WAITED_LIMIT:.0%} of the time it ran",
        {where: cost.waited_share for where, cost in windows.items()},
        limit=_WAITED_LIMIT,
    )
    # The short requests are a closed loop: there a fast relay leaves the load as the limit, by design.
    found += _summed(
        f"engine and client were busy more than {_LOAD_CORE_LIMIT:.0%} of the time",
        {where: cost.load_core_busy for where, cost in windows.items() if cost.kind != "request"},
        limit=_LOAD_CORE_LIMIT,
    )
    found += [f"{where}: FAILURE {failure}" for where, cost in windows.items() for failure in cost.failures]
    for latency in run.latencies:
        where = f"{latency.relay}, latency x{latency.level}, round {latency.number}"
        found += [f"{where}: FAILURE {failure}" for failure in latency.failures]
    for prompt in run.prompts:
        where = f"{prompt.relay}, prompts of {prompt.shape}, round {prompt.number}"
        found += [f"{where}: FAILURE {failure}" for failure in prompt.failures]
    return found + _of_workers(run)


def _of_workers(run: Run) -> list[str]:
    rounds = {f"{one.workers} workers, {one.kind}, round {one.number}": one for one in run.workers}
    found = _summed(
        f"engines or clients were busy more than {_LOAD_CORE_LIMIT:.0%} of the time, so the workers could do more",
        {where: max(one.engine_busy, one.client_busy) for where, one in rounds.items()},
        limit=_LOAD_CORE_LIMIT,
    )
    found += _summed(
        f"a worker was idle more than {1 - _WORKER_BUSY:.0%} of the time, so it was not at its limit",
        {where: 1 - min(one.worker_busy, default=0.0) for where, one in rounds.items() if one.kind == "requests"},
        limit=1 - _WORKER_BUSY,
    )
    return found + [f"{where}: {one.failures} FAILURES" for where, one in rounds.items() if one.failures]
