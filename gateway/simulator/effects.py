"""What each injection does to the time of steps: factors on their parts, and what comes beside them.

Pure.  Fitted to a labelled story of one real engine: a co-tenant doubles some steps at regular distances (its turns
on the card), stolen cores hold single steps back and the first token of every answer.  Must not know of readings.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from gateway.simulator.drift import Drift, DriftKind
from gateway.simulator.physics import StepParts

STALL_CHANCE = 0.04  # of a step, while somebody else has the cores: recorded 99th percentile and spread
_HICCUP_S = 0.0025  # a stall that asynchronous scheduling makes good: recorded, with cores stolen lightly
_LATE_S = 0.009  # recorded: first token after 23 to 24 ms instead of 14 to 15
_LATE_PART_S = 0.2  # recorded: after 38 ms at 7 %
_GOVERNOR_LATE_PART_S = 0.1  # assumed: slow cores make every first token late, and stall nothing


class Effects(Struct, frozen=True, kw_only=True):
    """Factors on the parts of a step, and what comes beside them.

    ``shared``: the part of a step's time that another process on the card takes on average.  ``stalls``: the part
    that the host takes, in single steps; ``hiccup_s`` is held back in single steps and made good in the next.
    ``foreign``: streams of strangers slow a single one by this part.
    """

    memory: float = 1.0
    wire: float = 1.0
    clock: float = 1.0
    whole: float = 1.0
    prefill: float = 1.0
    acceptance: float = 1.0
    shared: float = 0.0
    stalls: float = 0.0
    hiccup_s: float = 0.0
    first_token_s: float = 0.0
    extra_prompt_tokens: int = 0
    foreign: float = 0.0
    moving: bool = False  # changes with time: ask again

    @property
    def is_rough(self) -> bool:
        """Whether single steps differ from the others by more than noise."""
        return self.shared > 0 or self.hiccup_s > 0


class Step(Struct, frozen=True, kw_only=True):
    """What magnitudes are parts of: a single-stream step without context, and what a token of context adds to it."""

    parts: StepParts
    context_s: float

    def clock_factor(self, part: float) -> float:
        """What the clocks must lose for the step to lose this part; never so much that they run backwards."""
        return max(0.1, 1 + part * self.parts.total_s() / self.parts.clock_s)

    def memory_factor(self, part: float) -> float:
        """What reading the memory must lose."""
        return max(0.1, 1 + part * self.parts.total_s() / self.parts.memory_s)

    def wire_factor(self, part: float) -> float:
        """What the wires must lose; without wires (one GPU) nothing can."""
        return max(0.1, 1 + part * self.parts.total_s() / self.parts.wire_s) if self.parts.wire_s else 1.0


def with_effect(so_far: Effects, drift: Drift, *, age_s: float, step: Step) -> Effects:
    """The effects with one more injection, ``age_s`` old; factors multiply."""
    size = drift.magnitude
    match drift.kind:
        case DriftKind.THERMAL | DriftKind.POWER_CAP | DriftKind.SLOW_GPU:
            factor = step.clock_factor(size)
            return replace(so_far, clock=so_far.clock * factor, prefill=so_far.prefill * factor)
        case DriftKind.ECC:
            return replace(so_far, memory=so_far.memory * step.memory_factor(size))
        case DriftKind.PCIE_GEN | DriftKind.PCIE_WIDTH | DriftKind.NCCL_TRANSPORT:
            return replace(so_far, wire=so_far.wire * step.wire_factor(size))
        case DriftKind.CO_TENANT:
            return replace(so_far, shared=so_far.shared + size, prefill=so_far.prefill * (1 + size))
        case DriftKind.PROCESS_STATE | DriftKind.STATE_STEP:
            return replace(so_far, whole=so_far.whole * (1 + size))
        case DriftKind.SLOW_RAMP:
            reached = min(1.0, age_s / drift.ramp_s)
            return replace(so_far, whole=so_far.whole * (1 + size * reached), moving=reached < 1)
        case _:
            return _with_surroundings(so_far, drift, step)


def _with_surroundings(so_far: Effects, drift: Drift, step: Step) -> Effects:
    """What the host and the clients do; faults and traits do nothing to the pace."""
    size = drift.magnitude
    match drift.kind:
        case DriftKind.CPU_THEFT | DriftKind.STEAL | DriftKind.THROTTLING | DriftKind.SWAP:
            late_s = so_far.first_token_s + _LATE_S + _LATE_PART_S * size
            return replace(so_far, stalls=so_far.stalls + size, hiccup_s=_HICCUP_S, first_token_s=late_s)
        case DriftKind.GOVERNOR:
            late_s = so_far.first_token_s + _GOVERNOR_LATE_PART_S * size
            return replace(so_far, whole=so_far.whole * (1 + size), first_token_s=late_s)
        case DriftKind.ACCEPTANCE:
            return replace(so_far, acceptance=so_far.acceptance * (1 - size))
        case DriftKind.CONTEXT:
            extra = size * step.parts.total_s() / step.context_s if step.context_s else 0
            return replace(so_far, extra_prompt_tokens=so_far.extra_prompt_tokens + round(extra))
        case DriftKind.FOREIGN_TRAFFIC:
            return replace(so_far, foreign=size)
        case _:
            return so_far
