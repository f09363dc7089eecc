"""All injections in force on one engine, its own and those of its box: their effects and their signs together.

Pure.  Stands between the lists of injections and those who price steps and take readings.  Must not decide who may
inject what.
"""

from __future__ import annotations

from gateway.simulator.drift import Drift, DriftKind, InForce, Injections
from gateway.simulator.effects import Effects, Step, with_effect
from gateway.simulator.physics import StepParts
from gateway.simulator.signs import OF_ONE_GPU, GpuSigns, HostSigns, with_gpu_sign, with_host_sign


class Drifts:
    """Owner of the process's injections; the box's are shared with whoever runs on it."""

    __slots__ = ("_step", "box", "own")

    def __init__(self, parts: StepParts, *, context_s: float, box: Injections | None = None) -> None:
        """``parts``: a single-stream step without context; ``context_s``: what a token of context adds to it."""
        self._step = Step(parts=parts, context_s=context_s)
        self.own = Injections()
        self.box = box if box is not None else Injections()

    def version(self) -> int:
        """A number that changes with each change of what is in force."""
        return self.own.version + self.box.version

    def active(self) -> tuple[Drift, ...]:
        """What is in force: the process's, then the box's, each oldest first."""
        return tuple(one.drift for one in self._in_force())

    def has(self, kind: DriftKind) -> bool:
        """Whether an injection of this kind is in force."""
        return self.own.has(kind) or self.box.has(kind)

    def check(self, drift: Drift) -> None:
        """Raise ValueError for an injection whose effect on this engine cannot be told."""
        try:
            with_effect(self.effects(0.0), drift, age_s=drift.ramp_s, step=self._step)
        except ArithmeticError as error:
            raise ValueError(f"{drift.kind} {drift.magnitude:g} has no effect that could be computed") from error

    def effects(self, now: float) -> Effects:
        """All injections together; factors multiply."""
        effects = Effects()
        for one in self._in_force():
            effects = with_effect(effects, one.drift, age_s=now - one.since, step=self._step)
        return effects

    def gpu_signs(self, gpu: int) -> GpuSigns:
        """The readings of GPU number ``gpu`` as the readable injections change them."""
        signs = GpuSigns()
        for drift in self.active():
            if drift.readable and _is_on(drift, gpu):
                signs = with_gpu_sign(signs, drift, step=self._step)
        return signs

    def host_signs(self) -> HostSigns:
        """The readings of the host as the readable injections change them."""
        signs = HostSigns()
        for drift in self.active():
            if drift.readable:
                signs = with_host_sign(signs, drift, step=self._step)
        return signs

    def _in_force(self) -> list[InForce]:
        return self.own.in_force() + self.box.in_force()


def _is_on(drift: Drift, gpu: int) -> bool:
    if drift.gpu is None:
        return gpu == 0 or drift.kind not in OF_ONE_GPU
    return drift.gpu == gpu
