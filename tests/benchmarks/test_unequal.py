"""The figures of a window over unequal engines: what they are of, and how they are shown."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.unequal.figures import Figures, figures, middle, weighted
from benchmarks.unequal.scenes import LOADS, POLICIES, SCENES, engine_tps
from benchmarks.unequal.session import Window
from benchmarks.unequal.table import of_scene, warnings
from benchmarks.unequal.traffic import mean_tokens, tokens_of


def record(backend: str, *, tps: float, tokens: int = 100, outcome: str = "ok") -> dict[str, Any]:
    """What the gateway records, as far as the figures need it."""
    return {
        "backend": backend,
        "outcome": outcome,
        "ttft_s": 0.1,
        "summary": {"decode_tps": tps, "completion_tokens": tokens},
    }


def test_answers_count_once_and_at_a_moment_for_as_long_as_they_took() -> None:
    """Two streams, one twice as fast: it ends two of three answers, and each is half of what there is at any moment."""
    seen = figures(
        [record("f", tps=100.0), record("f", tps=100.0), record("s", tps=50.0)], generated=600.0, window_s=2.0, speed=1
    )
    assert (seen.answer_p50_tps, seen.answer_p10_tps) == (100.0, 50.0)
    assert (seen.moment_p10_tps, seen.moment_mean_tps) == (50.0, 75.0)
    assert seen.moment_mid_tps == pytest.approx(75.0)
    assert seen.moment_p50_tps in {50.0, 100.0}
    assert seen.total_tps == 300.0
    assert seen.shares == {"f": pytest.approx(2 / 3), "s": pytest.approx(1 / 3)}


def test_figures_are_on_the_engines_clock() -> None:
    seen = figures([record("f", tps=600.0)], generated=1200.0, window_s=2.0, speed=6)
    assert (seen.answer_p50_tps, seen.moment_p50_tps, seen.total_tps) == (100.0, 100.0, 100.0)
    assert seen.ttft_p50_s == pytest.approx(0.6)


def test_an_answer_that_was_not_good_is_no_figure() -> None:
    with pytest.raises(AssertionError, match="1 of 2 answers"):
        figures(
            [record("f", tps=1.0), record("f", tps=1.0, outcome="upstream_error")], generated=1, window_s=1, speed=1
        )


def test_weights_decide_where_the_middle_is() -> None:
    values = [(1.0, 6.0), (2.0, 3.0), (3.0, 1.0)]
    assert [weighted(values, share) for share in (0.1, 0.6, 0.61, 0.9, 1.0)] == [1.0, 1.0, 2.0, 2.0, 3.0]
    assert middle(values, 0.0, 1.0) == pytest.approx(1.5)
    assert middle(values, 0.5, 0.7) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="no values"):
        weighted([], 0.5)


def test_the_lengths_of_answers_are_the_same_for_every_policy_and_bounded() -> None:
    lengths = [tokens_of(number, seed=7) for number in range(500)]
    assert lengths == [tokens_of(number, seed=7) for number in range(500)]
    assert 40 <= min(lengths) < 100
    assert 400 < max(lengths) <= 800
    assert 200 < mean_tokens(seed=7) < 260


def test_slow_engines_are_half_as_fast_alone() -> None:
    drifts = {name: drift for scene in SCENES for name, drift in scene.engines.items()}
    assert engine_tps(drifts["slow"], streams=1) == pytest.approx(0.5 * engine_tps(None, streams=1), rel=0.05)


def window(policy: str, tps: float, *, load: str = "2 streams", cores: float = 0.1) -> Window:
    """One with the same figure everywhere."""
    seen = Figures(
        answers=9,
        answer_p50_tps=tps,
        answer_p10_tps=tps,
        moment_p50_tps=tps,
        moment_p10_tps=tps,
        moment_mid_tps=tps,
        moment_mean_tps=tps,
        total_tps=tps,
        ttft_p50_s=0.1,
        ttft_p95_s=0.1,
        shares={"well": 1.0},
    )
    return Window(
        scene="pcie",
        load=load,
        policy=policy,
        round=0,
        figures=seen,
        engine_cores=cores,
        gateway_cores=0.1,
        neighbours_cores=0.0,
        waited_share=cores,
    )


def test_the_table_shows_medians_of_the_rounds_against_least_in_flight_losses_too() -> None:
    names = [policy.value for policy in POLICIES]
    rounds = [window(name, tps) for name, tps in zip(names * 2, (40.0, 30.0, 50.0, 60.0, 30.0, 70.0), strict=True)]
    lines = of_scene(rounds).splitlines()
    assert [line.split(" | ")[1:3] for line in lines[2:]] == [
        ["least-in-flight", "50.0"],
        ["power-of-two", "30.0 (-40%)"],
        ["measured-rate", "60.0 (+20%)"],
    ]


def test_windows_in_which_the_machine_may_not_have_kept_up_are_named() -> None:
    (engine, others) = warnings([window("least-in-flight", 1.0), window("measured-rate", 1.0, cores=0.9)])
    assert "pcie, 2 streams, measured-rate, round 1: an engine took 0.90 cores" in engine
    assert "engines and gateway waited for a core for 90% of the time they ran" in others


def test_loads_are_named_for_people() -> None:
    assert [load.name for load in LOADS] == ["2 streams", "8 streams", "24 streams", "64 streams", "Poisson, 60%"]
