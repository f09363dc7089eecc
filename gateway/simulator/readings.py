"""What one look at a simulated box tells: its cards as NVML would, its host as the kernel would.

Pure values; instants are the caller's.  Must not know of causes.
"""

from __future__ import annotations

from msgspec import Struct


class GpuProcess(Struct, frozen=True, kw_only=True):
    """One compute process on one GPU; ``bytes_held`` as NVML counts them."""

    pid: int
    name: str
    bytes_held: int


class XidEvent(Struct, frozen=True, kw_only=True):
    """An error that the driver reported, with its number and instant; the past ones are not kept by NVML."""

    at: float
    gpu: int
    code: int


class GpuReading(Struct, frozen=True, kw_only=True):
    """One look at one GPU.  ``reasons`` are NVML's clock-event bits; utilisations in percent.

    ``ecc_corrected`` and ``ecc_uncorrected`` count since the driver came up, ``rows_remapped`` for ever.  ``is_lost``:
    the driver answers every question about the card but who it is with an error; the rest is not to be seen.
    """

    index: int
    name: str
    uuid: str
    memory_total_bytes: int
    memory_used_bytes: int
    processes: tuple[GpuProcess, ...]
    sm_clock_mhz: int
    memory_clock_mhz: int
    reasons: int
    power_w: float
    power_limit_w: int
    temperature_c: int
    utilisation: int
    memory_utilisation: int
    pcie_gen: int
    pcie_gen_max: int
    pcie_width: int
    pcie_width_max: int
    pcie_replays: int
    ecc_corrected: int
    ecc_uncorrected: int
    rows_remapped: int
    remap_pending: bool
    is_lost: bool = False


class HostReading(Struct, frozen=True, kw_only=True):
    """One look at the host.

    Pressures are percent of the last ten seconds; shares are of time: ``run_delay_share`` the engine's in the run
    queue, ``steal_share`` the hypervisor's, ``throttled_share`` its control group's.
    """

    cpu_pressure: float
    memory_pressure: float
    run_delay_share: float
    steal_share: float
    throttled_share: float
    swap_bytes_per_s: float
    governor: str
    cpu_mhz: int
    allreduce_s: float  # what a micro-benchmark of the decode payload would find
