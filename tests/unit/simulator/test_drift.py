"""Injections: each slows by what it says, and shows where a person would look."""

from __future__ import annotations

import itertools
from statistics import fmean, pstdev

import pytest

from gateway.simulator.drift import OF_THE_PROCESS, Drift, DriftKind
from gateway.simulator.engine import SimEngine
from gateway.simulator.gpu import IDLE_BIT, GpuHost, Work
from gateway.simulator.readings import GpuReading, HostReading
from gateway.simulator.signs import POWER_CAP_BIT, SW_THERMAL_BIT
from tests.fakes.presets import engine, forced, preset, quiet, run

CALM = quiet(preset())
SLOWING = [
    DriftKind.THERMAL,
    DriftKind.POWER_CAP,
    DriftKind.PCIE_GEN,
    DriftKind.CO_TENANT,
    DriftKind.PROCESS_STATE,
    DriftKind.NCCL_TRANSPORT,
]


def single_s(machine: SimEngine, now: float, tokens: int = 200) -> float:
    number = machine.submit(forced(tokens), now)
    return 1 / run(machine, now=now).rate(number)


def looked(machine: SimEngine, gpu: int = 0, *, streams: int = 1) -> GpuReading:
    host = GpuHost(CALM.box)
    host.hold(7, "VLLM::Worker_TP0", bytes_each=80 * 1024**3)
    return host.reading(gpu, Work(streams=streams), drifts=machine.pacer.drifts)


def host_of(machine: SimEngine) -> HostReading:
    return GpuHost(CALM.box).host_reading(allreduce_s=25e-6, drifts=machine.pacer.drifts)


def run_of(machine: SimEngine, now: float, tokens: int = 256) -> list[float]:
    """The instants of the tokens of one stream."""
    number = machine.submit(forced(tokens), now)
    return [at for at, _ in run(machine, now=now).of(number)]


@pytest.mark.parametrize("kind", SLOWING)
@pytest.mark.parametrize("size", [0.05, 0.2])
def test_a_cause_slows_a_single_stream_by_its_magnitude_and_goes(kind: DriftKind, size: float) -> None:
    machine = engine(CALM)
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=kind, magnitude=size), 100.0)
    assert single_s(machine, 100.0) / before - 1 == pytest.approx(size, rel=0.03)
    machine.inject(Drift(kind=kind, magnitude=0), 200.0)
    assert single_s(machine, 200.0) == pytest.approx(before, rel=1e-6)


def test_two_causes_act_together() -> None:
    machine = engine(CALM)
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=DriftKind.PROCESS_STATE, magnitude=0.1), 100.0)
    machine.inject(Drift(kind=DriftKind.CO_TENANT, magnitude=0.1), 100.0)
    assert single_s(machine, 100.0) / before == pytest.approx(1.21, rel=0.01)
    assert {drift.kind for drift in machine.pacer.drifts.active()} == {DriftKind.PROCESS_STATE, DriftKind.CO_TENANT}


def test_a_slow_ramp_reaches_its_magnitude_in_its_time() -> None:
    machine = engine(CALM)
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=DriftKind.SLOW_RAMP, magnitude=0.2, ramp_s=1000.0), 0.0)
    assert single_s(machine, 500.0) / before - 1 == pytest.approx(0.1, rel=0.03)
    assert single_s(machine, 5000.0) / before - 1 == pytest.approx(0.2, rel=0.02)
    assert single_s(machine, 5100.0) / before - 1 == pytest.approx(0.2, rel=0.02)


def test_stolen_cores_show_in_the_first_token_and_the_gaps() -> None:
    slower, ninety_ninth_s, late_s = [], [], []
    for seed in range(20):
        machine = engine(quiet(preset("qwen3-8b-h200")), seed=seed)
        calm = run_of(machine, 0.0)
        machine.inject(Drift(kind=DriftKind.CPU_THEFT, magnitude=0.07), 100.0)
        robbed = run_of(machine, 100.0)
        gaps = sorted(b - a for a, b in itertools.pairwise(robbed))
        slower.append((robbed[-1] - robbed[0]) / (calm[-1] - calm[0]) - 1)
        ninety_ninth_s.append(gaps[len(gaps) * 99 // 100])
        late_s.append(robbed[0] - 100.0 - calm[0])
    # Recorded: 7 % slower with a spread of 2.1 %, gaps' 99th percentile 17 ms, first token 24 ms later.
    assert fmean(slower) == pytest.approx(0.07, abs=0.015)
    assert pstdev(slower) == pytest.approx(0.021, abs=0.01)
    assert fmean(ninety_ninth_s) == pytest.approx(0.017, abs=0.004)
    assert fmean(late_s) == pytest.approx(0.0235, abs=0.002)
    reading = host_of(machine)
    assert looked(machine).utilisation == 92
    assert reading.cpu_pressure > 20
    assert reading.run_delay_share > 0.2


def test_lost_acceptance_changes_rates_and_not_the_step() -> None:
    machine = engine(quiet(preset("glm-5-nvfp4")))
    first = machine.submit(forced(400), 0.0)
    before, steps = run(machine).rate(first), machine.counters().inter_token_sum_s / machine.counters().iterations_total
    machine.inject(Drift(kind=DriftKind.ACCEPTANCE, magnitude=0.5), 100.0)
    second = machine.submit(forced(400), 100.0)
    after = run(machine).rate(second)
    assert after / before == pytest.approx(1.375 / 1.75, rel=0.06)
    assert machine.counters().inter_token_sum_s / machine.counters().iterations_total == pytest.approx(steps, rel=0.02)


def test_a_shift_of_context_lengthens_prompts_and_slows_by_its_magnitude() -> None:
    machine = engine(CALM)
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=DriftKind.CONTEXT, magnitude=0.1), 100.0)
    assert single_s(machine, 100.0) / before - 1 == pytest.approx(0.1, rel=0.03)
    extra = machine.counters().extra_prompt_tokens
    assert extra > 10_000
    assert machine.counters().prompt_tokens_total == 200 + extra


def test_without_wires_between_cards_the_wires_cannot_slow() -> None:
    machine = engine(quiet(preset("qwen3-8b-h200")))
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=DriftKind.PCIE_GEN, magnitude=0.2), 100.0)
    assert single_s(machine, 100.0) == pytest.approx(before)


def test_garbage_comes_with_the_next_request() -> None:
    def words(machine: SimEngine, now: float) -> list[str]:
        number = machine.submit(forced(30, seed=5), now)
        return [token.text for _, emission in run(machine).of(number) for token in emission.tokens]

    machine = engine(CALM)
    right = words(machine, 0.0)
    machine.inject(Drift(kind=DriftKind.GARBAGE, magnitude=1), 10.0)
    assert words(machine, 10.0) != right
    machine.inject(Drift(kind=DriftKind.GARBAGE, magnitude=0), 20.0)
    assert words(machine, 20.0) == right


def test_heat_shows_as_clock_reason_and_temperature_on_its_card_only() -> None:
    machine = engine(CALM)
    normal = looked(machine)
    machine.inject(Drift(kind=DriftKind.THERMAL, magnitude=0.15, gpu=3), 0.0)
    hot = looked(machine, 3)
    assert hot.reasons & SW_THERMAL_BIT
    assert hot.sm_clock_mhz < 0.85 * normal.sm_clock_mhz
    assert hot.temperature_c > normal.temperature_c + 10
    assert looked(machine, 2) == looked(engine(CALM), 2)


def test_a_power_cap_shows_as_limit_reason_and_clock() -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.POWER_CAP, magnitude=0.3), 0.0)
    reading = looked(machine)
    assert reading.reasons & POWER_CAP_BIT
    assert reading.power_limit_w < 600
    assert reading.power_w <= reading.power_limit_w
    assert reading.sm_clock_mhz < CALM.box.sm_clock_mhz


@pytest.mark.parametrize("size, generation", [(0.05, 4), (0.3, 2)])
def test_a_slower_link_shows_its_generation_replays_and_all_reduce(size: float, generation: int) -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.PCIE_GEN, magnitude=size, gpu=1), 0.0)
    reading = looked(machine, 1)
    assert (reading.pcie_gen, reading.pcie_gen_max) == (generation, 5)
    assert reading.pcie_replays > 0
    drifts = machine.pacer.drifts
    assert GpuHost(CALM.box).host_reading(allreduce_s=25e-6, drifts=drifts).allreduce_s > 25e-6


def test_a_co_tenant_shows_as_a_second_process_with_memory() -> None:
    machine = engine(CALM)
    alone = looked(machine)
    machine.inject(Drift(kind=DriftKind.CO_TENANT, magnitude=0.13), 0.0)
    shared = looked(machine)
    assert (len(alone.processes), len(shared.processes)) == (1, 2)
    assert shared.memory_used_bytes > alone.memory_used_bytes


@pytest.mark.parametrize("kind", [DriftKind.PROCESS_STATE, DriftKind.SLOW_RAMP])
def test_a_state_of_the_process_shows_nowhere(kind: DriftKind) -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=kind, magnitude=0.1), 0.0)
    assert looked(machine) == looked(engine(CALM))
    assert kind in OF_THE_PROCESS


@pytest.mark.parametrize("kind", [*SLOWING, DriftKind.CPU_THEFT])
def test_an_unreadable_cause_shows_nowhere_and_acts(kind: DriftKind) -> None:
    machine = engine(CALM)
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=kind, magnitude=0.1, readable=False), 100.0)
    assert single_s(machine, 100.0) > 1.05 * before
    assert looked(machine) == looked(engine(CALM))
    drifts = machine.pacer.drifts
    reading = GpuHost(CALM.box).host_reading(allreduce_s=25e-6, drifts=drifts)
    assert reading.cpu_pressure == 0
    assert reading.allreduce_s == 25e-6


def test_what_is_wrong_with_a_card_is_no_reading_of_the_host() -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.THERMAL, magnitude=0.3), 0.0)
    reading = GpuHost(CALM.box).host_reading(allreduce_s=25e-6, drifts=machine.pacer.drifts)
    assert (reading.cpu_pressure, reading.run_delay_share, reading.allreduce_s) == (0, 0, 25e-6)


def test_an_idle_card_reads_idle_whatever_is_wrong() -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.THERMAL, magnitude=0.3), 0.0)
    reading = looked(machine, streams=0)
    assert reading.reasons == IDLE_BIT
    assert reading.pcie_gen == 1
    assert reading.utilisation == 0
