"""The shipped deployments give their published figures through the gateway, as the gateway measures them.

In compressed time: engines run many times faster than real and put several tokens into an event of a crowded run, so
that two cores carry it. `make figures` is the same in real time. Everything here is a simulation.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop

from benchmarks import procstat
from benchmarks.published import rates, stage
from benchmarks.published.rates import Load
from benchmarks.published.session import TOKENS, alone_rows, crowded_rows, generation_s
from benchmarks.published.stage import EngineStart
from benchmarks.published.table import Row, markdown
from gateway.simulator import library

PRESETS = {name: library.load(name) for name in library.names()}
ALONE = [name for name, preset in PRESETS.items() if preset.published.single_tps is not None]
CROWDED = [name for name, preset in PRESETS.items() if preset.published.high_tps is not None]
ANSWER_S = 0.6  # of wall time, for one answer: long beside the millisecond of a timer and a busy machine's hiccups
ANSWERS = 7
GENERATION_S = 3.2  # of wall time, for every stream of a crowd to end once: the length of the window
INTERVAL = 32  # tokens in an event of a crowd
QUIET_SHARE = 0.3
"""An engine that waited longer than this share of its time for a core was not what was measured: it is asked again."""


def assert_met(rows: list[Row]) -> None:
    assert all(row.is_met for row in rows), f"\n{markdown(rows)}"


@pytest.mark.parametrize("name", ALONE)
def test_one_stream_has_the_published_rate_within_2_percent_and_about_half_of_it_is_reasoning(
    name: str, tmp_path: Path
) -> None:
    preset = PRESETS[name]
    published = preset.published
    assert published.single_tps is not None
    speed = published.single_tokens / published.single_tps / ANSWER_S
    load = Load(model=preset.model.name, tokens=published.single_tokens, speed=speed)
    start = EngineStart(preset=name, speed=speed, is_warm=True)
    with stage.engine(tmp_path, start) as engine, stage.gateway(tmp_path / "gateway", engine.port) as gateway:
        seen = uvloop.run(rates.alone(gateway, load, count=ANSWERS))
    rows = alone_rows(preset, seen)
    assert len(rows) == (3 if published.lone_tps else 2)
    assert_met(rows)


@pytest.mark.parametrize("name", CROWDED)
def test_many_streams_have_the_published_rate_within_5_percent(name: str, tmp_path: Path) -> None:
    preset = PRESETS[name]
    window_s = generation_s(preset)
    speed = window_s / GENERATION_S
    load = Load(model=preset.model.name, tokens=TOKENS, speed=speed)
    start = EngineStart(preset=name, speed=speed, is_warm=True, interval=INTERVAL)
    with stage.engine(tmp_path, start) as engine, stage.gateway(tmp_path / "gateway", engine.port) as gateway:
        for last in (False, False, True):
            before = of_processes(engine.pid)
            crowd = rates.crowded(gateway, load, streams=preset.published.high_streams, window_s=window_s)
            rows = crowded_rows(preset, uvloop.run(crowd))
            used = of_processes(engine.pid) - before
            if last or used.waited_ns <= QUIET_SHARE * used.ran_ns or all(row.is_met for row in rows):
                break
        assert_met(rows)


def of_processes(root_pid: int) -> procstat.CpuTime:
    return sum((procstat.cpu_time(pid) for pid in procstat.tree(root_pid)), procstat.CpuTime())


def test_the_three_published_deployments_are_held_to_their_figures() -> None:
    assert {"kimi-k2.5-int4", "kimi-k2.5-nvfp4"} <= set(ALONE)
    assert {"kimi-k2.5-int4", "minimax-m2.5-fp8"} <= set(CROWDED)
    story = PRESETS["kimi-k2.5-int4"].published
    assert (story.single_tps, story.lone_tps, story.high_tps, story.load_s) == (80.1, 81.4, 2276.0, 36 * 60)
