"""The shipped presets, and an engine run to its end in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

import gateway.simulator
from gateway.simulator.engine import SimEngine
from gateway.simulator.presets import Preset, preset_from
from gateway.simulator.request import Counters, Emission, SimRequest

FOLDER = Path(gateway.simulator.__file__).parent / "presets"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
LONG_AGO = -1e5  # an engine that began then is warm


def tree(name: str) -> dict[str, Any]:
    """The parsed file of a shipped preset."""
    parsed: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return parsed


def preset(name: str = "kimi-k2.5-int4") -> Preset:
    """A shipped preset."""
    return preset_from(tree(name))


def quiet(given: Preset) -> Preset:
    """The same deployment without any noise."""
    calm = replace(given.noise, step_cv=0.0, level_cv=0.0, start_sigma=0.0, modes=(), cold_factor=1.0, state_chance=0.0)
    return replace(given, noise=calm)


def engine(
    given: Preset,
    *arguments: str,
    seed: int = 1,
    environment: Mapping[str, str] | None = None,
    started_at: float = LONG_AGO,
) -> SimEngine:
    """An engine that serves."""
    return SimEngine(given, seed=seed, environment=environment or {}, arguments=arguments, started_at=started_at)


@dataclass
class Run:
    """What came out, with its instants; ``now`` is the last one."""

    emissions: list[tuple[float, Emission]] = field(default_factory=list)
    now: float = 0.0
    counters: Counters | None = None

    def of(self, request_id: int, choice: int = 0) -> list[tuple[float, Emission]]:
        """The emissions of one choice."""
        return [(at, e) for at, e in self.emissions if (e.request_id, e.choice) == (request_id, choice)]

    def rate(self, request_id: int) -> float:
        """(tokens - 1) / (last - first): the decode rate as a client sees it."""
        mine = self.of(request_id)
        return (mine[-1][1].generated_tokens - mine[0][1].generated_tokens) / (mine[-1][0] - mine[0][0])


def run(machine: SimEngine, *, until: float = float("inf"), now: float = 0.0) -> Run:
    """Step the engine until it is idle or ``until`` has come."""
    done = Run(now=now)
    while (due := machine.next_at()) is not None and due <= until:
        done.now = due
        done.emissions.extend((due, emission) for emission in machine.step(due))
    done.counters = machine.counters()
    return done


def load(machine: SimEngine, requests: Sequence[SimRequest], *, at_once: int) -> Run:
    """Keep ``at_once`` requests open until all have ended."""
    done = Run()
    waiting = list(reversed(requests))
    for _ in range(min(at_once, len(waiting))):
        machine.submit(waiting.pop(), done.now)
    while (due := machine.next_at()) is not None:
        done.now = due
        for emission in machine.step(due):
            done.emissions.append((due, emission))
            if emission.finish is not None and waiting:
                machine.submit(waiting.pop(), due)
    done.counters = machine.counters()
    return done


def forced(tokens: int = 512, *, seed: int = 0, prompt: int = 100, **more: Any) -> SimRequest:
    """A request for exactly so many tokens."""
    return SimRequest(prompt_tokens=prompt, max_tokens=tokens, ignore_eos=True, seed=seed, **more)
