"""Several runs of one machine as one report: for machines that are lent for less time than a whole run takes. Pure.

Rounds of the same part in two runs count on, so that ratios are still taken inside a round; what one run is missing and
another has is not missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from benchmarks.results import CostRound, LatencyRound, PacePair, PromptRound, Run, WorkersRound

Round = TypeVar("Round", bound=CostRound | LatencyRound | PacePair | PromptRound | WorkersRound)


def _after(found: Sequence[Round], more: Sequence[Round]) -> list[Round]:
    """The rounds of both, those of the second numbered on from the first's."""
    offset = max((one.number + 1 for one in found), default=0)
    return [*found, *(replace(one, number=one.number + offset) for one in more)]


def merged(runs: Sequence[Run]) -> Run:
    """All that the runs found; machine, date and settings are the first one's. Raises ValueError for two machines."""
    first, *others = runs
    whole = Run(machine=first.machine, settings=first.settings)
    for run in (first, *others):
        if (run.machine.cpu_model, run.machine.cores) != (first.machine.cpu_model, first.machine.cores):
            raise ValueError("figures of two machines cannot be compared")
        whole.notes |= run.notes
        whole.costs = _after(whole.costs, run.costs)
        whole.latencies = _after(whole.latencies, run.latencies)
        whole.paces = _after(whole.paces, run.paces)
        whole.prompts = _after(whole.prompts, run.prompts)
        whole.workers = _after(whole.workers, run.workers)
        whole.memories += run.memories
        whole.tap_us += run.tap_us
        whole.warnings += run.warnings
        whole.wall_s += run.wall_s
    for name in whole.notes:
        reasons = [run.missing.get(name) for run in runs if name in run.notes]
        if all(reasons):
            whole.missing[name] = str(reasons[0])
    measured = {f"P9 with {one.workers} workers" for one in whole.workers}
    for run in runs:
        whole.skipped |= {what: why for what, why in run.skipped.items() if what not in measured}
    return whole
