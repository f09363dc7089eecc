"""What can go wrong with the pace of a running engine, switched at run time: effects on time, signs in the readings.

Pure.  ``magnitude`` is the part by which the time of a single-stream step grows (0.07 is 7 % slower), whatever the
cause, so that detectors can be compared; the readings follow from it through the physics (a 7 % step by clocks alone
takes the SM clock down by more).  Magnitude 0 takes an injection back.  ``readable`` False leaves the effect and
takes the signs away.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gateway.simulator.physics import StepParts

# Bits of NVML's clock-event reasons.
POWER_CAP_BIT = 0x4
SW_THERMAL_BIT = 0x20
HW_THERMAL_BIT = 0x40

_RAMP_S = 3600.0
_TENANT_BYTES = 9 * 1024**3


class DriftKind(StrEnum):
    """The causes of the scenarios, then three faults that are not drifts of pace."""

    THERMAL = "thermal"
    POWER_CAP = "power-cap"
    PCIE_GEN = "pcie-gen"
    CO_TENANT = "co-tenant"
    CPU_THEFT = "cpu-theft"
    PROCESS_STATE = "process-state"
    NCCL_TRANSPORT = "nccl-transport"
    SLOW_RAMP = "slow-ramp"
    ACCEPTANCE = "acceptance"
    CONTEXT = "context"
    HANG = "hang"
    CRASH = "crash"
    GARBAGE = "garbage"


OF_THE_PROCESS = frozenset(
    {
        DriftKind.PROCESS_STATE,
        DriftKind.NCCL_TRANSPORT,
        DriftKind.SLOW_RAMP,
        DriftKind.HANG,
        DriftKind.CRASH,
        DriftKind.GARBAGE,
    }
)


class Drift(Struct, frozen=True, kw_only=True):
    """One injection.  ``gpu`` None means all; one slow GPU slows the engine as much as all.

    For ``acceptance`` the magnitude is the part of the acceptance that is lost; faults take any magnitude above 0.
    ``ramp_s`` is the time that a slow ramp takes to its full magnitude.
    """

    kind: DriftKind
    magnitude: float
    gpu: int | None = None
    readable: bool = True
    ramp_s: float = _RAMP_S


class Effects(Struct, frozen=True, kw_only=True):
    """Factors on the parts of a step, and what comes beside them."""

    memory: float = 1.0
    wire: float = 1.0
    clock: float = 1.0
    whole: float = 1.0
    prefill: float = 1.0
    acceptance: float = 1.0
    first_token_s: float = 0.0
    jitter_cv: float = 0.0
    extra_prompt_tokens: int = 0
    moving: bool = False  # changes with time: ask again


class GpuSigns(Struct, frozen=True, kw_only=True):
    """What the injections do to the readings of one GPU."""

    clock_ratio: float = 1.0
    reasons: int = 0
    power_limit_ratio: float = 1.0
    generations_lost: int = 0
    replays: int = 0
    tenant_bytes: int = 0
    hotter_c: int = 0


class HostSigns(Struct, frozen=True, kw_only=True):
    """What the injections do to the readings of the host, and to a micro-benchmark of all-reduce."""

    cpu_pressure: float = 0.0
    run_delay_share: float = 0.0
    allreduce_factor: float = 1.0


class Drifts:
    """The injections in force; owner: one engine (those of the process) or one host (the others)."""

    __slots__ = ("_active", "_context_s", "_parts")

    def __init__(self, parts: StepParts, *, context_s: float) -> None:
        """``parts``: a single-stream step without context; ``context_s``: what a token of context adds to it."""
        self._parts = parts
        self._context_s = context_s
        self._active: dict[DriftKind, tuple[Drift, float]] = {}

    def put(self, drift: Drift, now: float) -> None:
        """Switch an injection on, change it, or with magnitude 0 off.  At most one of a kind is in force."""
        if drift.magnitude == 0:
            self._active.pop(drift.kind, None)
        else:
            self._active[drift.kind] = (drift, now)

    def active(self) -> tuple[Drift, ...]:
        """What is in force, oldest first."""
        return tuple(drift for drift, _ in self._active.values())

    def has(self, kind: DriftKind) -> bool:
        """Whether an injection of this kind is in force."""
        return kind in self._active

    def effects(self, now: float) -> Effects:
        """All injections together; factors multiply."""
        effects = Effects()
        for drift, since in self._active.values():
            effects = self._add(effects, drift, now - since)
        return effects

    def gpu_signs(self, gpu: int) -> GpuSigns:
        """The readings of GPU number ``gpu`` as the readable injections change them."""
        signs = GpuSigns()
        for drift, _ in self._active.values():
            if drift.readable and drift.gpu in {None, gpu}:
                signs = self._sign(signs, drift)
        return signs

    def host_signs(self) -> HostSigns:
        """The readings of the host as the readable injections change them."""
        signs = HostSigns()
        for drift, _ in self._active.values():
            if not drift.readable:
                continue
            if drift.kind is DriftKind.CPU_THEFT:
                stolen = min(0.9, 0.1 + 4 * drift.magnitude)
                signs = replace(signs, cpu_pressure=100 * stolen, run_delay_share=stolen)
            elif drift.kind in {DriftKind.NCCL_TRANSPORT, DriftKind.PCIE_GEN}:
                factor = signs.allreduce_factor * self._wire_factor(drift.magnitude)
                signs = replace(signs, allreduce_factor=factor)
        return signs

    def _add(self, so_far: Effects, drift: Drift, age_s: float) -> Effects:  # noqa: PLR0911 - one case a kind
        size = drift.magnitude
        match drift.kind:
            case DriftKind.THERMAL | DriftKind.POWER_CAP:
                factor = self._clock_factor(size)
                return replace(so_far, clock=so_far.clock * factor, prefill=so_far.prefill * factor)
            case DriftKind.PCIE_GEN | DriftKind.NCCL_TRANSPORT:
                return replace(so_far, wire=so_far.wire * self._wire_factor(size))
            case DriftKind.CO_TENANT:
                return replace(so_far, whole=so_far.whole * (1 + size), prefill=so_far.prefill * (1 + size))
            case DriftKind.CPU_THEFT:
                # A real H200 host: 7 % slower, first token after 38 instead of 14 ms, gaps' 99th percentile 16, not 6.
                late_s = so_far.first_token_s + 0.009 + 0.2 * size
                return replace(so_far, whole=so_far.whole * (1 + size), first_token_s=late_s, jitter_cv=0.3)
            case DriftKind.PROCESS_STATE:
                return replace(so_far, whole=so_far.whole * (1 + size))
            case DriftKind.SLOW_RAMP:
                reached = min(1.0, age_s / drift.ramp_s)
                return replace(so_far, whole=so_far.whole * (1 + size * reached), moving=reached < 1)
            case DriftKind.ACCEPTANCE:
                return replace(so_far, acceptance=so_far.acceptance * (1 - size))
            case DriftKind.CONTEXT:
                extra = size * self._parts.total_s() / self._context_s if self._context_s else 0
                return replace(so_far, extra_prompt_tokens=so_far.extra_prompt_tokens + round(extra))
            case DriftKind.HANG | DriftKind.CRASH | DriftKind.GARBAGE:
                return so_far

    def _sign(self, so_far: GpuSigns, drift: Drift) -> GpuSigns:
        size = drift.magnitude
        match drift.kind:
            case DriftKind.THERMAL:
                bits = SW_THERMAL_BIT | (HW_THERMAL_BIT if size > 0.1 else 0)
                ratio = so_far.clock_ratio / self._clock_factor(size)
                return replace(so_far, clock_ratio=ratio, reasons=so_far.reasons | bits, hotter_c=22)
            case DriftKind.POWER_CAP:
                ratio = so_far.clock_ratio / self._clock_factor(size)
                return replace(
                    so_far,
                    clock_ratio=ratio,
                    reasons=so_far.reasons | POWER_CAP_BIT,
                    power_limit_ratio=1 / (1 + 3 * size),
                )
            case DriftKind.PCIE_GEN:
                return replace(so_far, generations_lost=1 if size < 0.1 else 3, replays=so_far.replays + 40)
            case DriftKind.CO_TENANT:
                return replace(so_far, tenant_bytes=_TENANT_BYTES)
            case _:
                return so_far

    def _clock_factor(self, size: float) -> float:
        return 1 + size * self._parts.total_s() / self._parts.clock_s

    def _wire_factor(self, size: float) -> float:
        """What the wires must lose; without wires (one GPU) nothing can."""
        return 1 + size * self._parts.total_s() / self._parts.wire_s if self._parts.wire_s else 1.0
