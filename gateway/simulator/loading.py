"""How a start goes: its phases with their instants, and its end - ready, dead or hung.

Pure.  The phases are those of a recorded start; a start dies where the real one does (memory not free: after the
workers came up; a wrong NCCL value: at its initialisation) and hangs where it does (peer access that does not work: at
the first all-reduce).  Times are seconds since exec, divided by ``speed``.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from gateway.simulator.nccl import AllReduce, Outcome
from gateway.simulator.presets import Preset


class Phase(StrEnum):
    """The parts of a start, in order; each is a field of LoadSpec."""

    BOOT = "boot"
    INSPECT = "inspect"
    WORKERS = "workers"
    NCCL = "nccl"
    WEIGHTS = "weights"
    COMPILE = "compile"
    MEMORY = "memory"
    GRAPHS = "graphs"
    WARM = "warm"
    SERVE = "serve"


class PhaseSpan(Struct, frozen=True, kw_only=True):
    """One phase; ``to_s`` None means that it never ends."""

    phase: Phase
    from_s: float
    to_s: float | None


class StartPlan(Struct, frozen=True, kw_only=True):
    """All phases that come, and what is after the last.  ``exit_code`` is None unless the start fails."""

    spans: tuple[PhaseSpan, ...]
    outcome: Outcome
    reason: str
    exit_code: int | None


def needed_bytes(preset: Preset, *, utilisation: float = 0.9) -> int:
    """What the engine takes of each GPU (``--gpu-memory-utilization``)."""
    return round(preset.box.memory_bytes * utilisation)


def plan_start(
    preset: Preset, allreduce: AllReduce, *, free_bytes: int, utilisation: float = 0.9, speed: float = 1.0
) -> StartPlan:
    """The start of ``preset`` with so much free on its fullest GPU."""
    stop_at, outcome, reason = None, Outcome.READY, ""
    wanted = needed_bytes(preset, utilisation=utilisation)
    if free_bytes < wanted:
        gib = 1024**3
        outcome, stop_at = Outcome.FAILS, Phase.WORKERS
        reason = (
            f"Free memory on device cuda:0 ({free_bytes / gib:.2f}/{preset.box.memory_bytes / gib:.2f} GiB) on startup "
            f"is less than desired GPU memory utilization ({wanted / preset.box.memory_bytes:.2f}, "
            f"{wanted / gib:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        )
    elif allreduce.outcome is not Outcome.READY:
        outcome, reason, stop_at = allreduce.outcome, allreduce.reason, Phase.NCCL
    spans = []
    at_s = 0.0
    for phase in Phase:
        length_s = getattr(preset.load, f"{phase.value}_s") / speed
        hung = phase is stop_at and outcome is Outcome.HANGS
        spans.append(PhaseSpan(phase=phase, from_s=at_s, to_s=None if hung else at_s + length_s))
        at_s += length_s
        if phase is stop_at:
            break
    return StartPlan(
        spans=tuple(spans), outcome=outcome, reason=reason, exit_code=1 if outcome is Outcome.FAILS else None
    )
