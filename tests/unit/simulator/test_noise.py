"""Noise of pace: what averages out, what does not, what lasts."""

from __future__ import annotations

import itertools
from math import log
from random import Random
from statistics import fmean, pstdev

import pytest

from gateway.simulator.noise import NoiseSpec, PaceNoise, StartMode, draw_start

QUIET = NoiseSpec(step_cv=0.0, level_cv=0.0, start_sigma=0.0)


def noise(spec: NoiseSpec, seed: int = 1) -> PaceNoise:
    return PaceNoise(spec, Random(seed), 0.0)


def test_without_any_noise_the_factor_is_one() -> None:
    assert noise(QUIET).factor(1000.0) == 1.0


def test_step_noise_has_its_spread_and_no_memory() -> None:
    machine = noise(NoiseSpec(step_cv=0.03, level_cv=0.0, start_sigma=0.0))
    factors = [machine.factor(at * 0.01) for at in range(20_000)]
    assert fmean(factors) == pytest.approx(1.0, abs=0.001)
    assert pstdev(factors) == pytest.approx(0.03, rel=0.05)


def test_a_wild_draw_never_makes_a_step_free() -> None:
    machine = noise(NoiseSpec(step_cv=5.0, level_cv=0.0, start_sigma=0.0))
    assert min(machine.factor(0.0) for _ in range(1000)) == 0.5


@pytest.mark.parametrize("every", [1, 3])
def test_the_level_is_an_ar1_with_its_spread_and_correlation_also_when_looked_at_seldom(every: int) -> None:
    machine = noise(NoiseSpec(step_cv=0.0, level_cv=0.03, level_phi=0.6, level_s=1.0, start_sigma=0.0))
    levels = [log(machine.factor(at * float(every) + 0.5)) for at in range(20_000)]
    spread = pstdev(levels)
    pairs = list(itertools.pairwise(levels))
    assert spread == pytest.approx(0.03, rel=0.05)
    assert fmean(a * b for a, b in pairs) / spread**2 == pytest.approx(0.6**every, abs=0.03)


def test_starts_spread_by_their_sigma() -> None:
    spec = NoiseSpec(start_sigma=0.02)
    starts = [log(draw_start(spec, Random(seed))) for seed in range(3000)]
    assert pstdev(starts) == pytest.approx(0.02, rel=0.06)


def test_starts_can_have_modes() -> None:
    modes = (StartMode(share=3, factor=1.0), StartMode(share=1, factor=1.24))
    starts = [draw_start(NoiseSpec(modes=modes), Random(seed)) for seed in range(2000)]
    assert set(starts) == {1.0, 1.24}
    assert starts.count(1.24) == pytest.approx(500, rel=0.15)


def test_a_cold_start_is_slow_and_fades() -> None:
    machine = noise(NoiseSpec(step_cv=0.0, level_cv=0.0, start_sigma=0.0, cold_factor=1.5, cold_s=8.0))
    assert machine.factor(0.0) == pytest.approx(1.5)
    assert machine.factor(20.0) < 1.05
    assert machine.factor(81.0) == 1.0


def test_a_long_load_leaves_a_state_and_the_next_one_takes_it_back() -> None:
    machine = noise(NoiseSpec(step_cv=0.0, level_cv=0.0, start_sigma=0.0, state_chance=1.0, state_step=0.04))
    assert machine.note_load(0, 0.0) is False
    assert machine.note_load(40, 1.0) is False
    assert machine.note_load(40, 8.0) is False
    assert machine.note_load(2, 12.0) is True
    assert abs(machine.factor(13.0) - 1) == pytest.approx(0.04)
    machine.note_load(40, 20.0)
    assert machine.note_load(0, 40.0) is True
    assert machine.factor(41.0) == 1.0


def test_a_short_load_leaves_nothing() -> None:
    machine = noise(NoiseSpec(state_chance=1.0))
    machine.note_load(40, 1.0)
    assert machine.note_load(0, 3.0) is False


def test_a_load_may_leave_nothing_and_steps_go_both_ways() -> None:
    states = set()
    for seed in range(40):
        machine = noise(NoiseSpec(state_chance=0.5), seed)
        machine.note_load(40, 0.0)
        machine.note_load(0, 30.0)
        states.add(machine.state)
    assert states == {1.0, 1.04, 0.96}
