"""The simulated GPUs and their host, as NVML and the kernel would show them.

Pure.  Knows who holds memory, what clocks, power, links and pressure read under a load, and the Xid events so far;
the injections in force change the readings.  Readings follow what one H200 showed: idle 615 MiB, utilisation 100 % at
one stream, the software power cap at 64 streams and more, the idle bit and a low clock only while nobody holds memory,
the link always at its generation.  Must not decide a step's time.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.simulator.drift import POWER_CAP_BIT, Drifts, GpuSigns
from gateway.simulator.presets import Box

IDLE_BIT = 0x1
RESERVED_BYTES = 615 * 1024 * 1024
_LOADED_STREAMS = 64
_CAP_SHARE = 0.97  # of the limit, drawn at full load
_RESTING_CLOCK = 0.174  # recorded: 345 of 1980 MHz while nobody holds memory
_CAPPED_CLOCK = 0.76  # recorded: 1500 of 1980 MHz at 630 to 680 W


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
    """One look at one GPU.  ``reasons`` are NVML's clock-event bits; utilisations in percent."""

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


class HostReading(Struct, frozen=True, kw_only=True):
    """One look at the host: CPU pressure (percent of time, ten seconds), the engine's run-queue delay as a share."""

    cpu_pressure: float
    run_delay_share: float
    allreduce_s: float  # what a micro-benchmark of the decode payload would find


class GpuHost:
    """The GPUs of one box; owner of what is held on them and of their Xid events."""

    __slots__ = ("_box", "_held", "_wedged", "xids")

    def __init__(self, box: Box) -> None:
        self._box = box
        self._held: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self._wedged: dict[int, int] = {}
        self.xids: list[XidEvent] = []

    def hold(self, pid: int, name: str, *, bytes_each: int, gpus: tuple[int, ...] | None = None) -> None:
        """A process takes memory on these GPUs (all by default); again with other sizes replaces what it had."""
        self._held[pid] = (name, bytes_each, gpus if gpus is not None else tuple(range(self._box.gpus)))

    def release(self, pid: int) -> None:
        """A process has ended; an unknown one is nothing."""
        self._held.pop(pid, None)

    def wedge(self, gpu: int, bytes_held: int) -> None:
        """Memory that no process holds any more: only a reset frees it.  0 bytes takes it back."""
        self._wedged[gpu] = bytes_held

    def xid(self, code: int, *, gpu: int, now: float) -> None:
        """The driver reports an error."""
        self.xids.append(XidEvent(at=now, gpu=gpu, code=code))

    def free_bytes(self, gpu: int) -> int:
        """What a new process could take."""
        return self._box.memory_bytes - self._used(gpu)

    def reading(self, gpu: int, *, streams: int, drifts: Drifts) -> GpuReading:
        """GPU number ``gpu`` now, with so many streams decoding on it."""
        box, signs = self._box, drifts.gpu_signs(gpu)
        limit_w = round(box.power_limit_w * signs.power_limit_ratio)
        wanted_w = self._wanted_w(gpu, streams)
        reasons, ratio = (signs.reasons, signs.clock_ratio) if streams else (0, 1.0)
        if not streams and not self._is_held(gpu):
            reasons, ratio = IDLE_BIT, _RESTING_CLOCK
        if wanted_w >= _CAP_SHARE * limit_w and streams:
            reasons |= POWER_CAP_BIT
            ratio *= _CAPPED_CLOCK if streams >= _LOADED_STREAMS else 1.0
        robbed = drifts.host_signs().run_delay_share > 0
        power_w = min(wanted_w * (0.6 + 0.4 * (ratio if streams else 1.0)), float(limit_w))
        return GpuReading(
            index=gpu,
            name=f"{box.gpu} (simulated)",
            uuid=f"GPU-00000000-0000-0000-0000-{gpu:012d}",
            memory_total_bytes=box.memory_bytes,
            memory_used_bytes=self._used(gpu) + signs.tenant_bytes,
            processes=self._processes(gpu, signs),
            sm_clock_mhz=round(box.sm_clock_mhz * ratio),
            memory_clock_mhz=box.memory_clock_mhz,
            reasons=reasons,
            power_w=power_w,
            power_limit_w=limit_w,
            temperature_c=round(30 + 30 * power_w / box.power_limit_w) + signs.hotter_c,
            utilisation=0 if not streams else 92 if robbed else 100,
            memory_utilisation=0 if not streams else 78,
            pcie_gen=max(1, box.pcie_gen - signs.generations_lost),
            pcie_gen_max=box.pcie_gen,
            pcie_width=box.pcie_width,
            pcie_width_max=box.pcie_width,
            pcie_replays=signs.replays,
        )

    def host_reading(self, *, allreduce_s: float, drifts: Drifts) -> HostReading:
        """The host now; ``allreduce_s``: one all-reduce of the decode payload when nothing is wrong."""
        signs = drifts.host_signs()
        return HostReading(
            cpu_pressure=signs.cpu_pressure,
            run_delay_share=signs.run_delay_share,
            allreduce_s=allreduce_s * signs.allreduce_factor,
        )

    def _used(self, gpu: int) -> int:
        held = sum(each for _, each, gpus in self._held.values() if gpu in gpus)
        return RESERVED_BYTES + held + self._wedged.get(gpu, 0)

    def _is_held(self, gpu: int) -> bool:
        return any(gpu in gpus for _, _, gpus in self._held.values())

    def _processes(self, gpu: int, signs: GpuSigns) -> tuple[GpuProcess, ...]:
        ours = [
            GpuProcess(pid=pid, name=name, bytes_held=each)
            for pid, (name, each, gpus) in self._held.items()
            if gpu in gpus
        ]
        if signs.tenant_bytes:
            ours.append(GpuProcess(pid=4242, name="other-tenant", bytes_held=signs.tenant_bytes))
        return tuple(ours)

    def _wanted_w(self, gpu: int, streams: int) -> float:
        box = self._box
        if not streams:
            # An idle server keeps a card half awake: 130 W instead of 84 on the H200.
            return box.idle_w * (1.55 if self._is_held(gpu) else 1.0)
        share = min(1.0, (streams - 1) / (_LOADED_STREAMS - 1))
        return box.busy_w + (_CAP_SHARE * box.power_limit_w - box.busy_w) * share
