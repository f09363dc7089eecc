"""What is measured: fleets of simulated engines, loads, and the policies that are compared. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.core.routing.policy import Policy
from gateway.simulator import library
from gateway.simulator.drift import Drift
from gateway.simulator.engine import SimEngine
from gateway.simulator.request import SimRequest

PRESET: Final = "kimi-k2.5-int4"
FULL_STREAMS: Final = 64
"""What an engine is taken to hold when it is full: a capacity must be of some number of streams."""

OPEN_SHARE: Final = 0.6
_FORCED_TOKENS: Final = 256

# The first is what the others are compared with.
POLICIES: Final = (Policy.LEAST_IN_FLIGHT, Policy.POWER_OF_TWO, Policy.MEASURED_RATE)

_WELL: Final[Mapping[str, object] | None] = None
_PCIE: Final[Mapping[str, object]] = {"kind": "pcie-width", "magnitude": 1.0}
_THERMAL: Final[Mapping[str, object]] = {"kind": "thermal", "magnitude": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Engines of one model by name, each with what is wrong with it."""

    name: str
    title: str
    engines: Mapping[str, Mapping[str, object] | None]

    def capacity_tps(self) -> float:
        """Tokens a second of all engines together with :data:`FULL_STREAMS` streams each."""
        return sum(engine_tps(drift, streams=FULL_STREAMS) for drift in self.engines.values())


SCENES: Final = (
    Scene(
        name="pcie",
        title="two engines, one on a PCIe link of fewer lanes: half as fast, alone and at load",
        engines={"well": _WELL, "slow": _PCIE},
    ),
    Scene(
        name="thermal",
        title="two engines, one too hot: half as fast alone, 82 % with 64 streams",
        engines={"well": _WELL, "slow": _THERMAL},
    ),
    Scene(
        name="three-slow",
        title="four engines, three of them on a PCIe link of fewer lanes",
        engines={"well": _WELL, "slow-1": _PCIE, "slow-2": _PCIE, "slow-3": _PCIE},
    ),
    Scene(name="equal", title="two equal engines", engines={"one": _WELL, "two": _WELL}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """So many ``streams`` that ask again when they are answered, or (0) arrivals at :data:`OPEN_SHARE` of capacity."""

    streams: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.streams} streams" if self.streams else f"Poisson, {OPEN_SHARE:.0%}"


LOADS: Final = (Load(streams=2), Load(streams=8), Load(streams=24), Load(streams=64), Load(streams=0))


def engine_tps(drift: Mapping[str, object] | None, *, streams: int) -> float:
    """Tokens a second of one engine with so many streams, in virtual time and without the gateway."""
    machine = SimEngine(library.load(PRESET), seed=0, environment={}, arguments=(), started_at=-1e6)
    if drift is not None:
        machine.inject(Drift(**drift), 0.0)  # type: ignore[arg-type] # the words of its control port
    for number in range(streams):
        machine.submit(SimRequest(prompt_tokens=100, max_tokens=_FORCED_TOKENS, ignore_eos=True, seed=number), 0.0)
    ended_s = 0.0
    while (due := machine.next_at()) is not None:
        machine.step(due)
        ended_s = due
    return streams * _FORCED_TOKENS / ended_s
