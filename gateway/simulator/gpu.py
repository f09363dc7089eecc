"""The simulated GPUs and their host, as NVML and the kernel would show them, and what is wrong with them.

Pure; may be shared by all engines of a box, and outlives them: memory that is held, injections of the box, Xid events.
Readings follow what one H200 showed: idle 615 MiB, utilisation 100 % at one stream, the software power cap at 64
streams and more and in long prefills, the idle bit and a low clock only while nobody holds memory.
Must not decide a step's time.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from gateway.simulator.drift import Drift, DriftKind, InForce, Injections
from gateway.simulator.drifting import Drifts
from gateway.simulator.presets import Box
from gateway.simulator.reading_noise import ReadingNoise
from gateway.simulator.readings import GpuProcess, GpuReading, HostReading, XidEvent
from gateway.simulator.signs import POWER_CAP_BIT, GpuSigns, HostSigns
from gateway.simulator.xids import GONE

IDLE_BIT = 0x1
RESERVED_BYTES = 615 * 1024 * 1024  # recorded: idle
_LOADED_STREAMS = 64  # recorded: from so many on the H200 is at its power cap
_CAP_SHARE = 0.97  # of the limit, drawn at full load: recorded 630 to 680 W of 700
_RESTING_CLOCK = 0.174  # recorded: 345 of 1980 MHz while nobody holds memory
_CAPPED_CLOCK = 0.76  # recorded: 1500 of 1980 MHz at 630 to 680 W
_TENANT_W = (0.085, 0.16)  # of the limit, and so much more a magnitude: recorded 71 W at 0.13, the cap at 1.25
_SPINNING_SHARE = 0.2  # of the limit: a hung collective draws 120 W of 600 at 100 %
_STARVED_SHARE = 0.94  # of the power: recorded 425 instead of 451 W, while cores were stolen
_MEMORY_BUSY = 78  # recorded at one stream
_CPU_MHZ = 3800  # assumed
_NO_PID = 4_194_304 + 4242  # above what Linux gives out: nobody can be hit by mistake
_REMAP_XID = 63


class Work(Struct, frozen=True, kw_only=True):
    """What an engine does on its cards now; ``spinning``: it waits in a collective that never ends."""

    streams: int
    prefilling: bool = False
    spinning: bool = False


class BoxRecord(Struct, frozen=True, kw_only=True):
    """What outlives every engine of a box, as plain data."""

    in_force: list[InForce] = []
    wedged: dict[int, int] = {}
    latched: dict[int, int] = {}
    xids: list[XidEvent] = []
    noise: ReadingNoise = ReadingNoise()


class GpuHost:
    """The GPUs of one box; owner of what is held on them, of what is wrong there and of their Xid events."""

    __slots__ = ("_box", "_held", "_latched", "_wedged", "injections", "noise", "xids")

    def __init__(self, box: Box) -> None:
        self._box = box
        self._held: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self._wedged: dict[int, int] = {}
        self._latched: dict[int, int] = {}  # GPU to the process that hung on it
        self.injections = Injections()
        self.noise = ReadingNoise()
        self.xids: list[XidEvent] = []

    # --- what is wrong --------------------------------------------------------------------------

    def inject(self, drift: Drift, now: float) -> None:
        """Switch an injection of the box on, or with magnitude 0 off; a row that is remapped is told as Xid 63.

        ValueError for a GPU that the box has not, here and in ``xid`` and ``wedge``.
        """
        self.check_gpu(drift.gpu)
        self.injections.put(drift, now)
        if drift.kind is DriftKind.ECC and drift.magnitude and drift.readable:
            self.xid(_REMAP_XID, gpu=drift.gpu or 0, now=now)

    def as_met(self, box: Box) -> Box:
        """The box as an engine meets it that starts now."""
        has = self.injections.has
        return replace(
            box,
            p2p_hangs=box.p2p_hangs or has(DriftKind.P2P_HANG),
            p2p_corrupts=box.p2p_corrupts or has(DriftKind.P2P_CORRUPT),
            ll128_corrupts=box.ll128_corrupts or has(DriftKind.LL128_CORRUPT),
        )

    def xid(self, code: int, *, gpu: int, now: float) -> None:
        """The driver reports an error; its codes begin at 1."""
        self.check_gpu(gpu)
        if code < 1:
            raise ValueError(f"an Xid's code must be above 0, not {code}")
        self.xids.append(XidEvent(at=now, gpu=gpu, code=code))

    def wedge(self, gpu: int, bytes_held: int) -> None:
        """Memory that no process holds any more: only a reset frees it.  0 bytes takes it back."""
        self.check_gpu(gpu)
        if not 0 <= bytes_held <= self._box.memory_bytes:
            raise ValueError(f"a GPU here has 0 to {self._box.memory_bytes} bytes to wedge, not {bytes_held}")
        self._wedged[gpu] = bytes_held

    def check_gpu(self, gpu: int | None) -> None:
        """Raise ValueError for the number of a GPU that the box has not; None is all of them."""
        if gpu is not None and not 0 <= gpu < self._box.gpus:
            raise ValueError(f"there is no GPU {gpu}: this box has 0 to {self._box.gpus - 1}")

    def is_lost(self, gpu: int) -> bool:
        """Whether the card fell off the bus: nothing of it can be read, and no engine starts on it."""
        return any(event.code in GONE and event.gpu == gpu for event in self.xids)

    def latch(self) -> None:
        """Who holds memory now waits in a collective on peer access; if it is killed there, its cards stay busy.

        They read 100 % and 120 W (of 600) without a process, as was seen of such cards, until the box is mended.
        """
        for pid, (_, _, gpus) in self._held.items():
            for gpu in gpus:
                self.latch_on(gpu, pid=pid)

    def latch_on(self, gpu: int, *, pid: int) -> None:
        """The same of one card and the process that waits on it."""
        self.check_gpu(gpu)
        self._latched[gpu] = pid

    def _is_latched(self, gpu: int) -> bool:
        return gpu in self._latched and self._latched[gpu] not in self._held

    def record(self) -> BoxRecord:
        """What the next start must find."""
        return BoxRecord(
            in_force=self.injections.in_force(),
            wedged=dict(self._wedged),
            latched=dict(self._latched),
            xids=list(self.xids),
            noise=self.noise,
        )

    def restore(self, record: BoxRecord) -> None:
        """Have what is recorded, and nothing else."""
        self.injections.restore(record.in_force)
        self._wedged = dict(record.wedged)
        self._latched = dict(record.latched)
        self.xids = list(record.xids)
        self.noise = record.noise

    # --- memory ---------------------------------------------------------------------------------

    def hold(self, pid: int, name: str, *, bytes_each: int, gpus: tuple[int, ...] | None = None) -> None:
        """A process takes memory on these GPUs (all by default); again with other sizes replaces what it had."""
        self._held[pid] = (name, bytes_each, gpus if gpus is not None else tuple(range(self._box.gpus)))

    def release(self, pid: int) -> None:
        """A process has ended; an unknown one is nothing."""
        self._held.pop(pid, None)

    def free_bytes(self, gpu: int) -> int:
        """What a new process could take."""
        return self._box.memory_bytes - self._used(gpu)

    # --- readings -------------------------------------------------------------------------------

    def reading(self, gpu: int, work: Work, *, drifts: Drifts) -> GpuReading:
        """GPU number ``gpu`` now, with this work on it and these injections on its engine and box."""
        box, signs, host_signs = self._box, drifts.gpu_signs(gpu), drifts.host_signs()
        limit_w = round(box.power_limit_w * signs.power_limit_ratio)
        if self._is_latched(gpu) and not work.streams and not work.prefilling:
            work = replace(work, spinning=True)
        wanted_w = self._wanted_w(gpu, work, signs)
        busy = work.streams > 0 or work.prefilling or work.spinning or signs.tenant_bytes > 0
        reasons, ratio = (signs.reasons, signs.clock_ratio) if busy else (0, 1.0)
        if not busy and not self._is_held(gpu):
            reasons, ratio = IDLE_BIT, _RESTING_CLOCK
        if busy and wanted_w >= _CAP_SHARE * limit_w:
            reasons |= POWER_CAP_BIT
            ratio *= _CAPPED_CLOCK if work.streams >= _LOADED_STREAMS else 1.0
        starved = host_signs.starved and not signs.tenant_bytes
        power_w = min(
            wanted_w * (0.6 + 0.4 * (ratio if busy else 1.0)) * (_STARVED_SHARE if starved else 1.0), float(limit_w)
        )
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
            utilisation=0 if not busy else 92 if starved else 100,
            memory_utilisation=_memory_busy(signs) if busy and not work.spinning else 0,
            pcie_gen=self._pcie_gen(signs, busy=busy),
            pcie_gen_max=box.pcie_gen,
            pcie_width=round(box.pcie_width * signs.width_ratio),
            pcie_width_max=box.pcie_width,
            pcie_replays=signs.replays,
            ecc_corrected=signs.ecc_corrected,
            ecc_uncorrected=0,
            rows_remapped=signs.rows_remapped,
            remap_pending=signs.rows_remapped > 0,
            is_lost=self.is_lost(gpu),
        )

    def host_reading(self, *, allreduce_s: float, drifts: Drifts) -> HostReading:
        """The host now; ``allreduce_s``: one all-reduce of the decode payload when nothing is wrong."""
        signs: HostSigns = drifts.host_signs()
        return HostReading(
            cpu_pressure=signs.cpu_pressure,
            memory_pressure=signs.memory_pressure,
            run_delay_share=signs.run_delay_share,
            steal_share=signs.steal_share,
            throttled_share=signs.throttled_share,
            swap_bytes_per_s=signs.swap_bytes_per_s,
            governor="performance" if signs.cpu_clock_ratio == 1 else "powersave",
            cpu_mhz=round(_CPU_MHZ * signs.cpu_clock_ratio),
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
            ours.append(GpuProcess(pid=_NO_PID, name="other-tenant", bytes_held=signs.tenant_bytes))
        return tuple(ours)

    def _pcie_gen(self, signs: GpuSigns, *, busy: bool) -> int:
        trained = max(1, self._box.pcie_gen - signs.generations_lost)
        return trained if busy else min(trained, self._box.pcie_gen_idle)

    def _wanted_w(self, gpu: int, work: Work, signs: GpuSigns) -> float:
        box = self._box
        tenant_w = box.power_limit_w * (_TENANT_W[0] + _TENANT_W[1] * signs.shared) if signs.tenant_bytes else 0.0
        if work.prefilling:
            return box.power_limit_w * _CAP_SHARE
        if work.spinning:
            return box.power_limit_w * _SPINNING_SHARE + tenant_w
        if not work.streams:
            # An idle server keeps a card half awake: 130 W instead of 84 on the H200.
            return tenant_w + box.idle_w * (1.55 if self._is_held(gpu) else 1.0)
        share = min(1.0, (work.streams - 1) / (_LOADED_STREAMS - 1))
        return tenant_w + box.busy_w + (_CAP_SHARE * box.power_limit_w - box.busy_w) * share


def _memory_busy(signs: GpuSigns) -> int:
    """Percent; a co-tenant that computes leaves less of it to ours: recorded 71 at 0.13, 44 at 1.25."""
    return round(_MEMORY_BUSY * (1 - 0.75 * signs.shared / (1 + signs.shared)))
