"""The shipped deployments: every figure has a source, and the published rates come out."""

from __future__ import annotations

from statistics import mean

import msgspec
import pytest

from gateway.simulator.presets import parameters, preset_from
from tests.fakes.presets import NAMES, engine, forced, load, preset, quiet, run, tree

SEEDS = range(1, 5)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_source_or_says_that_it_is_assumed(name: str) -> None:
    given = tree(name)
    sources = preset_from(given).sources
    assert set(sources) == set(parameters(given))
    assert all(len(source) > 5 for source in sources.values())


@pytest.mark.parametrize("name", NAMES)
def test_it_says_that_it_is_a_simulation(name: str) -> None:
    assert "simulated" in preset(name).title
    assert preset(name).name == name


def test_an_unknown_parameter_is_refused_by_name() -> None:
    given = tree("kimi-k2.5-int4")
    given["pace"]["overhaed_s"] = 1.0
    with pytest.raises(msgspec.ValidationError, match="overhaed_s"):
        preset_from(given)


def test_the_story_takes_36_minutes_to_load() -> None:
    assert preset("kimi-k2.5-int4").load.total_s() == pytest.approx(36 * 60)


def single_stream(name: str) -> float:
    """Mean decode rate of 512 tokens, about half of them reasoning, over several starts."""
    given = preset(name)
    rates = []
    for seed in SEEDS:
        machine = engine(given, seed=seed)
        for at in range(2):
            number = machine.submit(forced(seed=at), 1000.0 * at)
            rates.append(run(machine).rate(number))
    return mean(rates)


@pytest.mark.parametrize(
    "name, published",
    [("kimi-k2.5-int4", 80.1), ("kimi-k2.5-int4", 81.4), ("kimi-k2.5-nvfp4", 61.0), ("qwen3-8b-h200", 196.3)],
)
def test_a_single_stream_has_the_published_rate_within_2_percent(name: str, published: float) -> None:
    assert single_stream(name) == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    "environment, low, high",
    [
        ({}, 39.5, 40.5),
        ({"NCCL_P2P_LEVEL": "SYS", "NCCL_GRAPH_FILE": "/etc/turin-8gpu.xml"}, 65, 68),
        ({"NCCL_P2P_LEVEL": "SYS", "NCCL_PROTO": "LL,Simple;allreduce:LL"}, 65, 68),
    ],
)
def test_the_broken_box_has_its_published_rates_before_and_after_the_cure(
    environment: dict[str, str], low: float, high: float
) -> None:
    machine = engine(quiet(preset("kimi-k2.5-int4-turin")), environment=environment)
    number = machine.submit(forced(512), 0.0)
    assert low <= run(machine).rate(number) <= high


def test_about_half_of_a_single_stream_is_reasoning() -> None:
    machine = engine(preset())
    machine.submit(forced(512), 0.0)
    last = run(machine).emissions[-1][1]
    assert last.generated_tokens == 512
    assert last.reasoning_tokens == pytest.approx(256, abs=8)


@pytest.mark.parametrize(
    "name, published", [("kimi-k2.5-int4", 2276.0), ("minimax-m2.5-fp8", 4000.0), ("qwen3-8b-h200", 12_200.0)]
)
def test_many_streams_have_the_published_rate_within_5_percent(name: str, published: float) -> None:
    given = preset(name)
    streams = given.published.high_streams
    done = load(engine(given), [forced(seed=at) for at in range(2 * streams)], at_once=streams)
    assert done.counters is not None
    assert done.counters.generation_tokens_total / done.now == pytest.approx(published, rel=0.05)


@pytest.mark.parametrize("streams, recorded", [(1, 195.0), (4, 767.0), (16, 2975.0), (64, 9650.0)])
def test_the_recorded_engine_scales_as_it_did(streams: int, recorded: float) -> None:
    machine = engine(preset("qwen3-8b-h200"))
    done = load(machine, [forced(seed=at, prompt=20) for at in range(streams)], at_once=streams)
    assert 512 * streams / done.now == pytest.approx(recorded, rel=0.06)


@pytest.mark.parametrize("context, recorded", [(128, 195.8), (4096, 190.1), (16_384, 175.7)])
def test_the_recorded_engine_slows_with_context_as_it_did(context: int, recorded: float) -> None:
    machine = engine(preset("qwen3-8b-h200"))
    number = machine.submit(forced(512, prompt=context), 0.0)
    done = run(machine)
    assert done.rate(number) == pytest.approx(recorded, rel=0.02)
    if context == 16_384:
        assert done.emissions[0][0] == pytest.approx(0.53, rel=0.1)
