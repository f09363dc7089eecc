"""What can go wrong with a running engine and its box, by name; and the list of what is in force.

Pure.  ``magnitude`` is the part by which the time of a single-stream step grows (0.07 is 7 % slower), whatever the
cause, so that detectors can be compared; the readings follow from it through the physics (a 7 % step by clocks alone
takes the SM clock down by more).  Magnitude 0 takes an injection back.  What belongs to a process ends with it; what
belongs to the box is there for every engine on it, and for the next start.  Must not know what anything costs.
"""

from __future__ import annotations

from enum import StrEnum
from math import isfinite

from msgspec import Struct

_RAMP_S = 3600.0
_LEAST, _MOST = -0.9, 10.0  # of a magnitude: a step ten times faster, eleven times slower


class DriftKind(StrEnum):
    """Causes of a change of pace by where they are; then faults; then what waits for the next start of an engine."""

    # the cards
    THERMAL = "thermal"
    POWER_CAP = "power-cap"
    SLOW_GPU = "slow-gpu"  # one among equals, with no reason to read
    ECC = "ecc"  # memory errors and remapped rows
    CO_TENANT = "co-tenant"
    # between the cards
    PCIE_GEN = "pcie-gen"
    PCIE_WIDTH = "pcie-width"
    NCCL_TRANSPORT = "nccl-transport"
    # the host
    CPU_THEFT = "cpu-theft"
    STEAL = "steal"  # by other guests of a hypervisor
    THROTTLING = "throttling"  # by a limit of the control group
    SWAP = "swap"
    GOVERNOR = "governor"
    # the workload
    ACCEPTANCE = "acceptance"
    CONTEXT = "context"
    FOREIGN_TRAFFIC = "foreign-traffic"
    # the process
    PROCESS_STATE = "process-state"
    STATE_STEP = "state-step"  # as after a load event; below 0 it is a gain
    SLOW_RAMP = "slow-ramp"
    # faults of the process
    HANG = "hang"
    CRASH = "crash"
    GARBAGE = "garbage"
    # traits of the box that a start meets
    P2P_HANG = "p2p-hang"
    P2P_CORRUPT = "p2p-corrupt"
    LL128_CORRUPT = "ll128-corrupt"


OF_THE_PROCESS = frozenset(
    {
        DriftKind.PROCESS_STATE,
        DriftKind.STATE_STEP,
        DriftKind.SLOW_RAMP,
        DriftKind.HANG,
        DriftKind.CRASH,
        DriftKind.GARBAGE,
    }
)
"""What a restart cures; everything else is the box's, or its clients'."""


class Drift(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One injection.  ``gpu`` None means all; one slow GPU slows the engine as much as all.

    ``slow-gpu`` and ``ecc`` are of one GPU: None is the first.  For ``acceptance`` the magnitude is the part of the
    acceptance that is lost; for ``foreign-traffic`` so many streams run as slow a single one by at least the
    magnitude; faults and traits take any magnitude above 0, and none goes beyond 10.  ``ramp_s`` is the time that a
    slow ramp takes to its full magnitude.  ``readable`` False leaves the effect and takes the signs away.  Only a
    state of the process can be a gain, of 0.9 at most: ValueError for any other magnitude below 0, and for what is
    no magnitude, time or GPU.
    """

    kind: DriftKind
    magnitude: float
    gpu: int | None = None
    readable: bool = True
    ramp_s: float = _RAMP_S

    def __post_init__(self) -> None:
        if self.magnitude < 0 and self.kind not in {DriftKind.STATE_STEP, DriftKind.PROCESS_STATE}:
            raise ValueError(f"{self.kind} cannot have a magnitude below 0")
        if not _LEAST <= self.magnitude <= _MOST:  # false for what is no number as well
            raise ValueError(f"a magnitude must be from {_LEAST:g} to {_MOST:g}, not {self.magnitude:g}")
        if not (isfinite(self.ramp_s) and self.ramp_s > 0):
            raise ValueError(f"ramp_s must be above 0, not {self.ramp_s:g}")
        if self.gpu is not None and self.gpu < 0:
            raise ValueError(f"there is no GPU {self.gpu}")


class InForce(Struct, frozen=True):
    """An injection and the instant since when it acts."""

    drift: Drift
    since: float


class Injections:
    """The injections in force; owner: one engine (those of the process) or one box (the others).

    ``version`` grows with each change, so that who prices by it can ask cheaply whether to look again.
    """

    __slots__ = ("_active", "version")

    def __init__(self) -> None:
        self._active: dict[DriftKind, InForce] = {}
        self.version = 0

    def put(self, drift: Drift, now: float) -> None:
        """Switch an injection on, change it, or with magnitude 0 off.  At most one of a kind is in force."""
        if drift.magnitude == 0:
            self._active.pop(drift.kind, None)
        else:
            self._active[drift.kind] = InForce(drift, now)
        self.version += 1

    def restore(self, told: list[InForce]) -> None:
        """Have exactly these in force."""
        active = {one.drift.kind: one for one in told}
        if active != self._active:
            self._active = active
            self.version += 1

    def in_force(self) -> list[InForce]:
        """What is in force, oldest first."""
        return list(self._active.values())

    def has(self, kind: DriftKind) -> bool:
        """Whether an injection of this kind is in force."""
        return kind in self._active
