"""One sentence for a tired person: is all well, and if not, what is worst.

Pure; used by the status report.  Must not list everything: the report beside it does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from gateway.ports import PoolReport, WorkerReport

_SHOWN: Final = 3
"""Models that are named in the sentence."""


def summary_of(
    pools: Sequence[PoolReport],
    workers: Sequence[WorkerReport],
    *,
    in_flight: int,
    store_problem: str,
    keys_problem: str = "",
) -> str:
    """The worst that is wrong, else that all is well and how much is going on."""
    down = [pool.name for pool in pools if not pool.serving]
    if down:
        return f"DOWN: no backend serves {_pools(down)}"
    if not any(worker.fresh for worker in workers):
        return "DOWN: no worker is connected" if not workers else "DOWN: no worker answers"
    unreported = next((pool for pool in pools if pool.unreported), None)
    if unreported is not None:
        return f"no backend of pool {unreported.name} reports {_models(unreported.unreported)}: is the name right?"
    short = [pool.name for pool in pools if pool.serving < pool.min_available]
    if short:
        return f"short: fewer backends than wanted serve {_pools(short)}"
    if not all(worker.fresh for worker in workers):
        return "a worker does not answer; the others serve"
    if keys_problem or store_problem:
        return (
            f"serving with the keys of before, their file cannot be used: {keys_problem}"
            if keys_problem
            else f"serving, but requests are not recorded: {store_problem}"
        )
    serving = sum(pool.serving for pool in pools)
    backends = sum(pool.backends for pool in pools)
    if serving < backends:
        return f"serving with {serving} of {backends} backends, {_requests(in_flight)}"
    return f"all well: {serving} of {backends} backends serve, {_requests(in_flight)}"


def summary_of_stop(in_flight: int, left_s: float) -> str:
    """How far a stop of the gateway is: what is open, and in how many seconds it is ended."""
    if not in_flight:
        return "stopping: nothing is open any more"
    end = f"cut off in {math.ceil(left_s)} s" if left_s > 0 else "being cut off now"
    return f"stopping: {_requests(in_flight)}, {end}"


def _pools(names: Sequence[str]) -> str:
    return f"pool {names[0]}" if len(names) == 1 else f"pools {', '.join(names)}"


def _models(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"model{'' if len(names) == 1 else 's'} {shown}{more}"


def _requests(in_flight: int) -> str:
    return f"{in_flight} request{'' if in_flight == 1 else 's'} in flight"
