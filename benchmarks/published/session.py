"""The parts of a run in their order, each with about how long it takes and the rows that it gives.

Owner of the engines, which all run from the first part on, so that the slow minute after a start is waited for once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.published import core, rates, stage
from benchmarks.published.rates import Load
from benchmarks.published.stage import FAST_LOAD, EngineStart
from benchmarks.published.table import (
    HIGH_WITHIN,
    LOAD_WITHIN,
    SHARE_WITHIN,
    SINGLE_WITHIN,
    Row,
    about,
    at_least,
    at_most,
)
from gateway.simulator.presets import Preset

TOKENS: Final = 512
"""The length of an answer among many; the published ones did not say."""

_ANSWERS: Final = 8
_COLD_STARTS: Final = 6  # times `cold_s`: what is left of the slow start is then about one part in a thousand
_LOAD_SPEED: Final = 60.0
_HEAVY_TPS: Final = 5000.0
_CORE_WINDOW_S: Final = 15.0
_STEPS_PER_S: Final = 100_000.0
_START_S: Final = 3.0  # of a gateway or an engine, and its end


@dataclass(frozen=True, slots=True)
class Part:
    """One thing to do: about how long it takes, and what gives its rows.

    ``needs_quiet``: it takes so much of the processors that busy neighbours would show in the figure.
    """

    name: str
    about_s: float
    rows: Callable[[], list[Row]]
    needs_quiet: bool = False


def generation_s(preset: Preset) -> float:
    """How long so many answers at once take, on the engine's clock: the window that sees every stream end once."""
    published = preset.published
    return published.high_streams * TOKENS / (published.high_tps or 1.0)


class Session:
    """Measures presets at a speed; what it starts is ended by ``stack``."""

    def __init__(self, presets: Sequence[Preset], folder: Path, *, speed: float, stack: ExitStack) -> None:
        self._presets = presets
        self._folder = folder
        self._speed = speed
        self._stack = stack
        self._engines: dict[str, stage.Engine] = {}
        cold_s = [preset.noise.cold_s for preset in presets if preset.noise.cold_factor != 1.0]
        self._cold_s = _COLD_STARTS * max(cold_s, default=0.0)
        self._warm_at_s = 0.0

    def parts(self) -> list[Part]:
        """Everything there is to do, in order."""
        made = []
        for preset in self._presets:
            about_s = preset.load.total_s() / _load_speed(preset) + 1
            made.append(Part(f"{preset.name}: load", about_s, partial(self._load, preset)))
        made.append(Part("until no engine is cold any more", self._cold_s / self._speed, self._warm_up))
        for preset in self._presets:
            published = preset.published
            if published.single_tps is not None:
                about_s = _ANSWERS * published.single_tokens / published.single_tps / self._speed + _START_S
                made.append(Part(f"{preset.name}: one stream", about_s, partial(self._alone, preset)))
            if published.high_tps is not None:
                about_s = 2 * generation_s(preset) / self._speed + _START_S
                name = f"{preset.name}: {published.high_streams} streams"
                is_heavy = published.high_tps * self._speed > _HEAVY_TPS
                made.append(Part(name, about_s, partial(self._crowded, preset), needs_quiet=is_heavy))
        return made

    def _load(self, preset: Preset) -> list[Row]:
        load_speed = _load_speed(preset)
        start = EngineStart(preset=preset.name, speed=self._speed, load_speed=load_speed)
        engine = self._engines[preset.name] = self._stack.enter_context(stage.engine(self._folder, start))
        self._warm_at_s = time.monotonic() + self._cold_s / self._speed
        if preset.published.load_s is None:
            return []
        loaded_s = engine.loaded_in_s * load_speed
        figure = f"load, s (at {load_speed:g} times the speed)"
        return [about(preset.name, figure, wanted=preset.published.load_s, measured=loaded_s, within=LOAD_WITHIN)]

    def _warm_up(self) -> list[Row]:
        time.sleep(max(0.0, self._warm_at_s - time.monotonic()))
        return []

    def _alone(self, preset: Preset) -> list[Row]:
        published = preset.published
        load = Load(model=preset.model.name, tokens=published.single_tokens, speed=self._speed)
        with stage.gateway(self._folder / f"{preset.name}-one", self._engines[preset.name].port) as gateway:
            seen = uvloop.run(rates.alone(gateway, load, count=_ANSWERS))
        return alone_rows(preset, seen)

    def _crowded(self, preset: Preset) -> list[Row]:
        published = preset.published
        load = Load(model=preset.model.name, tokens=TOKENS, speed=self._speed)
        with stage.gateway(self._folder / f"{preset.name}-many", self._engines[preset.name].port) as gateway:
            crowd = rates.crowded(gateway, load, streams=published.high_streams, window_s=generation_s(preset))
            return crowded_rows(preset, uvloop.run(crowd))


def alone_rows(preset: Preset, seen: rates.Alone) -> list[Row]:
    """What one stream gave, against each figure that was published of it, and the share of reasoning in it."""
    published = preset.published
    wanted = {
        f"one stream of {published.single_tokens}, tok/s": published.single_tps,
        "alone, tok/s": published.lone_tps,
    }
    rows = [
        about(preset.name, figure, wanted=tps, measured=seen.decode_tps, within=published.single_within)
        for figure, tps in wanted.items()
        if tps is not None
    ]
    share = about(
        preset.name,
        "reasoning, % of its tokens",
        wanted=100 * preset.serve.reasoning_share,
        measured=100 * seen.reasoning_share,
        within=SHARE_WITHIN,
    )
    return [*rows, share]


def crowded_rows(preset: Preset, tps: float) -> list[Row]:
    """What many streams gave together, against what was published."""
    published = preset.published
    figure = f"{published.high_streams} streams, tok/s"
    return [about(preset.name, figure, wanted=published.high_tps or 0.0, measured=tps, within=HIGH_WITHIN)]


def _load_speed(preset: Preset) -> float:
    """A load whose length was published is measured; of the others only the end is waited for."""
    return FAST_LOAD if preset.published.load_s is None else _LOAD_SPEED


def simulator_parts(preset: str, folder: Path) -> list[Part]:
    """What the simulator itself can carry: 256 streams on one core, steps in virtual time."""
    return [
        Part(
            f"one engine on one core, {core.STREAMS} streams",
            _CORE_WINDOW_S + 10,
            partial(_one_core, folder),
            needs_quiet=True,
        ),
        Part("virtual time", 5.0, partial(_virtual, preset)),
    ]


def _one_core(folder: Path) -> list[Row]:
    first, *others = sorted(os.sched_getaffinity(0))
    seen = core.carried(folder, cores=(first, others[0] if others else first), window_s=_CORE_WINDOW_S)
    subject = f"one engine, {core.STREAMS} streams"
    return [
        about(subject, "slowest stream, tok/s", wanted=core.TPS, measured=seen.slowest_tps, within=SINGLE_WITHIN),
        about(subject, "middle stream, tok/s", wanted=core.TPS, measured=seen.median_tps, within=SINGLE_WITHIN),
        at_most(subject, "CPU, % of the core", wanted=100.0, measured=100 * seen.core_share),
    ]


def _virtual(preset: str) -> list[Row]:
    one, crowd = (core.virtual_steps_per_s(preset, streams=streams) for streams in (1, core.STREAMS))
    return [
        at_least("virtual time", "decode steps/s, one stream", wanted=_STEPS_PER_S, measured=one),
        at_least(
            "virtual time", f"tokens/s, {core.STREAMS} streams", wanted=_STEPS_PER_S, measured=crowd * core.STREAMS
        ),
    ]
