"""A run: engines once a scene, a new gateway for each policy and round, all loads through it, policies in turn.

A gateway begins without any knowledge of its engines, so what a policy must learn it learns in the warm-up of its first
load. The order of policies turns around with every round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from benchmarks import procstat
from benchmarks.published import stage
from benchmarks.published.neighbours import Neighbours
from benchmarks.published.stage import Engine, EngineStart, Gateway, say
from benchmarks.unequal import figures
from benchmarks.unequal.figures import Figures
from benchmarks.unequal.scenes import OPEN_SHARE, POLICIES, PRESET, Load, Scene
from benchmarks.unequal.traffic import Traffic, mean_tokens
from gateway.core.routing.policy import Policy
from gateway.simulator import library

_SCRAPE_S: Final = 2.0
_LEAST_FRESH_S: Final = 2.0
_STEP: Final = 1_000_000  # between the prompts of two windows
_WINDOWS: Final = 3

QUIET_SHARE: Final = 0.25
"""An engine that waits for its core by 40 ms at a time is a slower engine; so much waiting has few of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of a run; ``warm_up_s`` and ``window_s`` are on the engines' clock, ``speed`` times faster than ours."""

    speed: float = 6.0
    warm_up_s: float = 60.0
    window_s: float = 90.0
    rounds: int = 2
    workers: int = 1
    seed: int = 7
    loads: Sequence[Load]

    def about_s(self, scenes: int) -> float:
        """How long all of it takes."""
        window_s = (self.warm_up_s + self.window_s) / self.speed + 1
        return scenes * (5 + self.rounds * len(POLICIES) * (4 + len(self.loads) * window_s))


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What one window found, and in cores what the busiest engine, the gateway and everybody else took meanwhile.

    ``waited_share``: how long engines and gateway could have run and did not get a core, over the time that they ran.
    """

    scene: str
    load: str
    policy: str
    round: int
    figures: Figures
    engine_cores: float
    gateway_cores: float
    neighbours_cores: float
    waited_share: float


class Session:
    """Measures one scene after the other."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._mean_tokens = mean_tokens(seed=plan.seed)
        self._model = library.load(PRESET).model.name
        self._count = 0

    def windows(self, scene: Scene) -> Iterator[Window]:
        """All windows of a scene, each told when it is over."""
        plan = self._plan
        per_s = OPEN_SHARE * scene.capacity_tps() / self._mean_tokens
        with ExitStack() as stack:
            engines = {
                name: stack.enter_context(stage.engine(self._folder, self._start(number, drift=drift)))
                for number, (name, drift) in enumerate(scene.engines.items())
            }
            for number in range(plan.rounds):
                for policy in POLICIES if number % 2 == 0 else reversed(POLICIES):
                    for window in self._through(scene, engines, policy, number=number, per_s=per_s):
                        say(shown(window))
                        yield window

    def _start(self, number: int, *, drift: Mapping[str, object] | None) -> EngineStart:
        return EngineStart(
            preset=PRESET, speed=self._plan.speed, seed=self._plan.seed + number, is_warm=True, drift=drift
        )

    def _through(
        self, scene: Scene, engines: dict[str, Engine], policy: Policy, *, number: int, per_s: float
    ) -> Iterator[Window]:
        """Every load through a new gateway."""
        plan = self._plan
        self._count += 1
        folder = self._folder / f"gateway-{self._count}"
        scrape_s = _SCRAPE_S / plan.speed
        gateway = Gateway(
            folder,
            ports=stage.free_pair(),
            engines={name: engine.port for name, engine in engines.items()},
            pool={"routing": {"policy": policy.value}},
            more={
                "workers": plan.workers,
                "probes": {"scrape_s": scrape_s},
                "timers": {"pulse_fresh_s": max(_LEAST_FRESH_S, 3 * scrape_s)},
            },
        )
        folder.mkdir(parents=True)
        with stage.serving(gateway, folder) as process:
            for load in plan.loads:
                self._count += 1
                traffic = Traffic(gateway.port, model=self._model, seed=plan.seed, first=self._count * _STEP)
                coming = traffic.closed(load.streams) if load.streams else traffic.arriving(per_s * plan.speed)
                watch = _Watch(engines, gateway_pid=process.pid)
                seen, used = uvloop.run(self._measured(gateway, engines, coming, watch=watch))
                yield Window(
                    scene=scene.name,
                    load=load.name,
                    policy=policy.value,
                    round=number,
                    figures=seen,
                    engine_cores=used.engine_cores,
                    gateway_cores=used.gateway_cores,
                    neighbours_cores=used.neighbours_cores,
                    waited_share=used.waited_share,
                )

    async def _measured(
        self, gateway: Gateway, engines: dict[str, Engine], coming: Coroutine[None, None, None], *, watch: _Watch
    ) -> tuple[Figures, _Used]:
        """Warm up, and look at windows until one was quiet; the quietest counts, whatever it showed."""
        plan = self._plan
        done: list[tuple[_Used, Figures]] = []
        async with asyncio.TaskGroup() as group:
            running = group.create_task(coming)
            await asyncio.sleep(plan.warm_up_s / plan.speed)
            while len(done) < _WINDOWS and (not done or done[-1][0].waited_share > QUIET_SHARE):
                done.append(await self._window(gateway, engines, watch))
            running.cancel()
        used, seen = min(done, key=lambda it: it[0].waited_share)
        return seen, used

    async def _window(self, gateway: Gateway, engines: dict[str, Engine], watch: _Watch) -> tuple[_Used, Figures]:
        plan = self._plan
        watch.begin()
        before = await asyncio.to_thread(_generated, engines)
        from_wall = time.time()
        await asyncio.sleep(plan.window_s / plan.speed)
        after = await asyncio.to_thread(_generated, engines)
        until_wall = time.time()
        used = watch.end()
        ended = await asyncio.to_thread(gateway.ended, from_wall, until_wall)
        window_s = until_wall - from_wall
        return used, figures.figures(ended, generated=after - before, window_s=window_s, speed=plan.speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    engine_cores: float
    gateway_cores: float
    neighbours_cores: float
    waited_share: float


class _Watch:
    """Who ran and who waited for a core over a window: the engines, the gateway with all its processes, all others."""

    def __init__(self, engines: dict[str, Engine], *, gateway_pid: int) -> None:
        self._trees = [procstat.tree(engine.pid) for engine in engines.values()]
        self._trees.append(procstat.tree(gateway_pid))
        self._from_s = 0.0
        self.begin()

    def begin(self) -> None:
        """The window begins."""
        self._neighbours = Neighbours()
        self._before = self._look()
        self._from_s = time.monotonic()

    def end(self) -> _Used:
        """It is over."""
        took_s, after = time.monotonic() - self._from_s, self._look()
        spent = [now - then for now, then in zip(after, self._before, strict=True)]
        *engines, gateway = (it.ran_ns / 1e9 / took_s for it in spent)
        return _Used(
            engine_cores=max(engines),
            gateway_cores=gateway,
            neighbours_cores=self._neighbours.cores(),
            waited_share=sum(it.waited_ns for it in spent) / sum(it.ran_ns for it in spent),
        )

    def _look(self) -> list[procstat.CpuTime]:
        nothing = procstat.CpuTime()
        return [sum((procstat.cpu_time(pid) for pid in tree), nothing) for tree in self._trees]


def _generated(engines: dict[str, Engine]) -> float:
    return sum(engine.generated() for engine in engines.values())


def shown(window: Window) -> str:
    """A line of progress."""
    it = window.figures
    return (
        f"{window.scene:<10} {window.load:<13} {window.policy:<15} moment p50 {it.moment_p50_tps:5.1f} mid {it.moment_mid_tps:5.1f} p10 "
        f"{it.moment_p10_tps:5.1f}  answer p50 {it.answer_p50_tps:5.1f} p10 {it.answer_p10_tps:5.1f}  total "
        f"{it.total_tps:6.0f}  ttft {it.ttft_p50_s:.2f} {it.ttft_p95_s:.2f}  n {it.answers:<5} "
        f"{' '.join(f'{name} {share:.0%}' for name, share in it.shares.items())}  cores: engine "
        f"{window.engine_cores:.2f} gateway {window.gateway_cores:.2f} others {window.neighbours_cores:.2f} waited "
        f"{window.waited_share:.2f}"
    )
