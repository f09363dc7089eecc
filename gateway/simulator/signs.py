"""What each injection does to the readings of the cards and of the host.

Pure.  A cause shows where it would on a real box and nowhere else: clocks and reasons for heat and power, the process
list for a co-tenant, pressure and run-queue delay for stolen cores, and nothing at all for a state of the process.
Must not know what a step costs beyond the factors it is handed.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from gateway.simulator.drift import Drift, DriftKind
from gateway.simulator.effects import Step

# Bits of NVML's clock-event reasons.
POWER_CAP_BIT = 0x4
SW_THERMAL_BIT = 0x20
HW_THERMAL_BIT = 0x40

OF_ONE_GPU = frozenset({DriftKind.SLOW_GPU, DriftKind.ECC})
_TENANT_BYTES = 714 * 1024**2  # recorded: a process that multiplies matrices
_HOTTER_C = 22  # assumed
_REPLAYS = 40  # assumed
_CORRECTED, _REMAPPED = 12_000, 2  # assumed: a bank that fails
_SWAPPED_BYTES_PER_S = 80e6  # assumed


class GpuSigns(Struct, frozen=True, kw_only=True):
    """What the injections do to the readings of one GPU; ``shared`` is a co-tenant's part of the step."""

    clock_ratio: float = 1.0
    reasons: int = 0
    power_limit_ratio: float = 1.0
    generations_lost: int = 0
    width_ratio: float = 1.0
    replays: int = 0
    tenant_bytes: int = 0
    shared: float = 0.0
    hotter_c: int = 0
    ecc_corrected: int = 0
    rows_remapped: int = 0


class HostSigns(Struct, frozen=True, kw_only=True):
    """What the injections do to the readings of the host, and to a micro-benchmark of all-reduce.

    ``starved``: the cards wait for the host now and then.
    """

    cpu_pressure: float = 0.0
    run_delay_share: float = 0.0
    steal_share: float = 0.0
    throttled_share: float = 0.0
    memory_pressure: float = 0.0
    swap_bytes_per_s: float = 0.0
    cpu_clock_ratio: float = 1.0
    starved: bool = False
    allreduce_factor: float = 1.0


def with_gpu_sign(so_far: GpuSigns, drift: Drift, *, step: Step) -> GpuSigns:
    """The signs of a GPU with one more injection that is on it."""
    size = drift.magnitude
    match drift.kind:
        case DriftKind.THERMAL:
            bits = SW_THERMAL_BIT | (HW_THERMAL_BIT if size > 0.1 else 0)
            ratio = so_far.clock_ratio / step.clock_factor(size)
            return replace(so_far, clock_ratio=ratio, reasons=so_far.reasons | bits, hotter_c=_HOTTER_C)
        case DriftKind.POWER_CAP:
            ratio, bits = so_far.clock_ratio / step.clock_factor(size), so_far.reasons | POWER_CAP_BIT
            return replace(so_far, clock_ratio=ratio, reasons=bits, power_limit_ratio=1 / (1 + 3 * size))
        case DriftKind.SLOW_GPU:
            return replace(so_far, clock_ratio=so_far.clock_ratio / step.clock_factor(size))
        case DriftKind.ECC:
            return replace(so_far, ecc_corrected=_CORRECTED, rows_remapped=_REMAPPED)
        case DriftKind.PCIE_GEN:
            lost = 1 if size < 0.1 else 3
            return replace(so_far, generations_lost=lost, replays=so_far.replays + _REPLAYS)
        case DriftKind.PCIE_WIDTH:
            ratio = 0.5 if size < 0.1 else 0.25
            return replace(so_far, width_ratio=ratio, replays=so_far.replays + _REPLAYS)
        case DriftKind.CO_TENANT:
            return replace(so_far, tenant_bytes=_TENANT_BYTES, shared=size)
        case _:
            return so_far


def with_host_sign(so_far: HostSigns, drift: Drift, *, step: Step) -> HostSigns:
    """The signs of the host with one more injection."""
    size = drift.magnitude
    taken = min(0.9, 0.1 + 4 * size)
    starved = so_far.starved or size >= 0.03  # recorded: stolen lightly, a card stays at 100 %
    match drift.kind:
        case DriftKind.CPU_THEFT:
            return replace(so_far, cpu_pressure=100 * taken, run_delay_share=taken, starved=starved)
        case DriftKind.STEAL:
            return replace(so_far, steal_share=taken, starved=starved)
        case DriftKind.THROTTLING:
            return replace(so_far, throttled_share=taken, starved=starved)
        case DriftKind.SWAP:
            pressure = 100 * min(0.9, 0.05 + 2 * size)
            return replace(so_far, memory_pressure=pressure, swap_bytes_per_s=_SWAPPED_BYTES_PER_S, starved=starved)
        case DriftKind.GOVERNOR:
            return replace(so_far, cpu_clock_ratio=so_far.cpu_clock_ratio / (1 + 10 * size))
        case DriftKind.NCCL_TRANSPORT | DriftKind.PCIE_GEN | DriftKind.PCIE_WIDTH:
            return replace(so_far, allreduce_factor=so_far.allreduce_factor * step.wire_factor(size))
        case _:
            return so_far
