"""What machine a run took place on, and whether its figures can be believed.

The guards only warn: a figure is never changed or left out because of them.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import CostRound, Machine, Run

_LOAD_CORE_LIMIT = 0.9
_FOREIGN_LIMIT_CORES = 0.1
_WAITED_LIMIT = 0.1


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


def describe() -> Machine:
    """This machine, now."""
    return Machine(
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        cpu_model=_cpu_model(),
        cores=os.cpu_count() or 1,
        kernel=platform.release(),
        python=platform.python_version(),
        revision=_revision(),
        load_average=os.getloadavg()[0],
    )


def disturbed(cost: CostRound) -> bool:
    """True when processes outside the run took a notable part of its two cores."""
    return cost.foreign_share > _FOREIGN_LIMIT_CORES


def doubts(cost: CostRound) -> list[str]:
    """Why one window may not be worth what it says."""
    found = []
    where = f"{cost.relay}, {cost.kind} x{cost.level}, round {cost.number}"
    if cost.load_core_busy > _LOAD_CORE_LIMIT and cost.kind != "request":
        found.append(f"{where}: engine and client were busy {cost.load_core_busy:.0%} of the time")
    if disturbed(cost):
        found.append(f"{where}: other processes took {cost.foreign_share:.2f} of the two cores")
    if cost.waited_share > _WAITED_LIMIT:
        found.append(f"{where}: the relay waited for its core {cost.waited_share:.0%} of the time it ran")
    found += [f"{where}: FAILURE {failure}" for failure in cost.failures]
    return found


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


def warnings(run: Run) -> list[str]:
    """Every doubt about a run, the failures of its latency rounds included."""
    found = [doubt for cost in quietest(run.costs) for doubt in doubts(cost)]
    for latency in run.latencies:
        found += [
            f"{latency.relay}, latency x{latency.level}, round {latency.number}: FAILURE {failure}"
            for failure in latency.failures
        ]
    return found
