"""Each cause changes exactly the readings that it changes on a real box, and lives as long as it does there."""

from __future__ import annotations

import itertools
from statistics import fmean

import pytest
from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from gateway.simulator.drift import OF_THE_PROCESS, Drift, DriftKind
from gateway.simulator.engine import SimEngine
from gateway.simulator.gpu import GpuHost, Work
from tests.fakes.presets import LONG_AGO, engine, forced, preset, quiet, run

CALM = quiet(preset())
H200 = quiet(preset("qwen3-8b-h200"))
POWER = {"power_w", "temperature_c"}
SIGNS: dict[DriftKind, set[str]] = {
    DriftKind.THERMAL: {"sm_clock_mhz", "reasons"} | POWER,
    DriftKind.POWER_CAP: {"sm_clock_mhz", "reasons", "power_limit_w"} | POWER,
    DriftKind.SLOW_GPU: {"sm_clock_mhz"} | POWER,
    DriftKind.ECC: {"ecc_corrected", "rows_remapped", "remap_pending"},
    DriftKind.CO_TENANT: {"processes", "memory_used_bytes", "memory_utilisation"} | POWER,
    DriftKind.PCIE_GEN: {"pcie_gen", "pcie_replays", "allreduce_s"},
    DriftKind.PCIE_WIDTH: {"pcie_width", "pcie_replays", "allreduce_s"},
    DriftKind.NCCL_TRANSPORT: {"allreduce_s"},
    DriftKind.CPU_THEFT: {"utilisation", "cpu_pressure", "run_delay_share"} | POWER,
    DriftKind.STEAL: {"utilisation", "steal_share"} | POWER,
    DriftKind.THROTTLING: {"utilisation", "throttled_share"} | POWER,
    DriftKind.SWAP: {"utilisation", "memory_pressure", "swap_bytes_per_s"} | POWER,
    DriftKind.GOVERNOR: {"governor", "cpu_mhz"},
}
NOWHERE = sorted(set(DriftKind) - SIGNS.keys())


def read(machine: SimEngine, *, streams: int = 1, gpu: int = 0) -> dict[str, object]:
    """All readings of one card and of the host, by name."""
    machine.host.hold(7, "VLLM::Worker_TP0", bytes_each=80 * 1024**3)
    drifts = machine.pacer.drifts
    looks: list[Struct] = [
        machine.host.reading(gpu, Work(streams=streams), drifts=drifts),
        machine.host.host_reading(allreduce_s=25e-6, drifts=drifts),
    ]
    return asdict(looks[0]) | asdict(looks[1])


def changed(machine: SimEngine, *, streams: int = 1, gpu: int = 0) -> set[str]:
    """The readings that differ from those of a box where nothing is wrong."""
    normal = read(engine(CALM), streams=streams, gpu=gpu)
    return {name for name, value in read(machine, streams=streams, gpu=gpu).items() if value != normal[name]}


def single_s(machine: SimEngine, now: float, tokens: int = 200) -> float:
    number = machine.submit(forced(tokens), now)
    return 1 / run(machine, now=now, until=now + 60).rate(number)


@pytest.mark.parametrize("kind", sorted(SIGNS))
def test_a_cause_shows_in_its_readings_and_in_no_other(kind: DriftKind) -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=kind, magnitude=0.12), 0.0)
    assert changed(machine) == SIGNS[kind]


@pytest.mark.parametrize("kind", NOWHERE)
def test_states_faults_and_workload_show_in_no_reading_of_the_box(kind: DriftKind) -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=kind, magnitude=0.12), 0.0)
    assert changed(machine) == set()


@pytest.mark.parametrize("kind", sorted(SIGNS))
def test_an_unreadable_cause_shows_nowhere(kind: DriftKind) -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=kind, magnitude=0.12, readable=False), 0.0)
    assert changed(machine) == set()
    assert machine.host.xids == []


@pytest.mark.parametrize("kind", [DriftKind.SLOW_GPU, DriftKind.ECC])
def test_what_is_of_one_card_shows_on_the_first_unless_another_is_named(kind: DriftKind) -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=kind, magnitude=0.12), 0.0)
    assert [bool(changed(machine, gpu=gpu)) for gpu in range(3)] == [True, False, False]
    machine.inject(Drift(kind=kind, magnitude=0.12, gpu=2), 0.0)
    assert [bool(changed(machine, gpu=gpu)) for gpu in range(3)] == [False, False, True]


def test_a_narrow_link_shows_without_load_and_a_slow_one_does_not() -> None:
    narrow, slow = engine(CALM), engine(CALM)
    narrow.inject(Drift(kind=DriftKind.PCIE_WIDTH, magnitude=0.05), 0.0)
    slow.inject(Drift(kind=DriftKind.PCIE_GEN, magnitude=0.05), 0.0)
    assert read(narrow, streams=0)["pcie_width"] == 8
    assert read(slow, streams=0)["pcie_gen"] == read(engine(CALM), streams=0)["pcie_gen"] == 1
    assert read(slow)["pcie_gen"] == 4


def test_a_remapped_row_is_told_by_the_driver() -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.ECC, magnitude=0.05, gpu=3), 7.0)
    assert [(event.code, event.gpu, event.at) for event in machine.host.xids] == [(63, 3, 7.0)]


@pytest.mark.parametrize("size, watts, reasons, memory", [(0.13, 508, 0, 71), (1.25, 662, 4, 44)])
def test_a_co_tenant_reads_as_recorded(size: float, watts: int, reasons: int, memory: int) -> None:
    machine = engine(H200)
    machine.inject(Drift(kind=DriftKind.CO_TENANT, magnitude=size), 0.0)
    host = machine.host
    host.hold(719, "VLLM::EngineCore", bytes_each=129_534 * 1024**2)
    reading = host.reading(0, Work(streams=1), drifts=machine.pacer.drifts)
    assert len(reading.processes) == 2
    assert reading.power_w == pytest.approx(watts, rel=0.13)  # at 497 W alone in one session, at 437 in the other
    assert (reading.reasons, reading.utilisation) == (reasons, 100)
    assert reading.memory_utilisation == pytest.approx(memory, abs=2)


def test_a_co_tenant_keeps_the_card_busy_while_we_rest() -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.CO_TENANT, magnitude=0.13), 0.0)
    assert read(machine, streams=0)["utilisation"] == 100
    assert read(machine, streams=0)["pcie_gen"] == 5


def test_a_co_tenant_takes_turns_at_regular_distances() -> None:
    machine = engine(H200)
    alone = run_of(machine, 0.0)
    machine.inject(Drift(kind=DriftKind.CO_TENANT, magnitude=0.13), 100.0)
    shared = run_of(machine, 200.0)
    steps = [b - a for a, b in itertools.pairwise(shared)]
    step_s = (alone[-1] - alone[0]) / (len(alone) - 1)
    assert sorted(steps)[len(steps) // 2] == pytest.approx(step_s, rel=0.01)  # the median is as before
    assert sorted(steps)[len(steps) * 99 // 100] == pytest.approx(2 * step_s, rel=0.02)
    assert fmean(steps) == pytest.approx(1.13 * step_s, rel=0.01)


def run_of(machine: SimEngine, now: float, tokens: int = 256) -> list[float]:
    number = machine.submit(forced(tokens), now)
    return [at for at, _ in run(machine, now=now).of(number)]


def test_a_long_prompt_draws_the_limit_and_a_hung_collective_a_fifth_of_it() -> None:
    machine = engine(CALM)
    drifts = machine.pacer.drifts
    long = machine.host.reading(0, Work(streams=1, prefilling=True), drifts=drifts)
    hung = machine.host.reading(0, Work(streams=1, spinning=True), drifts=drifts)
    assert (long.reasons, long.sm_clock_mhz) == (4, CALM.box.sm_clock_mhz)
    assert (hung.reasons, hung.utilisation, round(hung.power_w)) == (0, 100, 120)


@pytest.mark.parametrize("kind", [DriftKind.SLOW_GPU, DriftKind.ECC, DriftKind.PCIE_WIDTH, DriftKind.GOVERNOR])
def test_a_cause_slows_a_single_stream_by_its_magnitude(kind: DriftKind) -> None:
    machine = engine(CALM)
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=kind, magnitude=0.1), 100.0)
    assert single_s(machine, 100.0) / before - 1 == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize("kind", [DriftKind.STEAL, DriftKind.THROTTLING, DriftKind.SWAP])
def test_what_starves_the_host_slows_on_average_by_its_magnitude(kind: DriftKind) -> None:
    slower = []
    for seed in range(20):
        machine = engine(CALM, seed=seed)
        before = single_s(machine, 0.0)
        machine.inject(Drift(kind=kind, magnitude=0.1), 100.0)
        slower.append(single_s(machine, 100.0) / before - 1)
    assert fmean(slower) == pytest.approx(0.1, abs=0.02)


def first_s(machine: SimEngine, now: float) -> float:
    number = machine.submit(forced(4, prompt=8000), now)
    return run(machine, now=now).of(number)[0][0] - now


@pytest.mark.parametrize("kind", [DriftKind.PCIE_GEN, DriftKind.PROCESS_STATE, DriftKind.CO_TENANT, DriftKind.THERMAL])
def test_a_long_prompt_is_slower_too(kind: DriftKind) -> None:
    machine = engine(CALM)
    before = first_s(machine, 0.0)
    machine.inject(Drift(kind=kind, magnitude=0.2), 100.0)
    assert 1.05 < first_s(machine, 100.0) / before < 2.5


@pytest.mark.parametrize("size", [0.04, -0.04])
def test_a_state_step_goes_both_ways_and_can_be_taken_back(size: float) -> None:
    machine = engine(CALM)
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=DriftKind.STATE_STEP, magnitude=size), 100.0)
    assert single_s(machine, 100.0) / before - 1 == pytest.approx(size, rel=0.02)
    machine.inject(Drift(kind=DriftKind.STATE_STEP, magnitude=0), 200.0)
    assert single_s(machine, 200.0) == pytest.approx(before)


def test_nothing_else_can_be_a_gain() -> None:
    with pytest.raises(ValidationError, match="thermal"):
        convert({"kind": "thermal", "magnitude": -0.1}, Drift)


# --- who keeps it ----------------------------------------------------------------------------------------------------


def restarted(machine: SimEngine) -> SimEngine:
    """The next start on the same box."""
    return SimEngine(CALM, seed=1, environment={}, arguments=(), started_at=LONG_AGO, host=machine.host)


STEPS = [kind for kind in DriftKind if kind not in {DriftKind.HANG, DriftKind.CRASH}]


@pytest.mark.parametrize("kind", STEPS)
def test_a_restart_cures_what_is_of_the_process_and_nothing_else(kind: DriftKind) -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=kind, magnitude=0.12), 0.0)
    assert machine.pacer.drifts.has(kind)
    assert restarted(machine).pacer.drifts.has(kind) is (kind not in OF_THE_PROCESS)


def test_engines_of_one_box_share_what_is_wrong_there() -> None:
    one = engine(CALM)
    other = restarted(one)
    before = single_s(other, 0.0)
    one.inject(Drift(kind=DriftKind.THERMAL, magnitude=0.1), 50.0)
    one.inject(Drift(kind=DriftKind.PROCESS_STATE, magnitude=0.3), 50.0)
    assert single_s(other, 100.0) / before - 1 == pytest.approx(0.1, rel=0.03)
    one.inject(Drift(kind=DriftKind.THERMAL, magnitude=0.0), 150.0)
    assert single_s(other, 200.0) == pytest.approx(before)


# --- strangers -------------------------------------------------------------------------------------------------------


def test_foreign_traffic_is_in_the_batch_and_the_counters_and_its_tokens_are_nobodys() -> None:
    machine = engine(H200)
    before = single_s(machine, 0.0)
    machine.inject(Drift(kind=DriftKind.FOREIGN_TRAFFIC, magnitude=0.012), 100.0)
    run(machine, until=101.0)
    strangers = machine.counters().running
    assert 1 <= strangers <= 3
    made = machine.counters().generation_tokens_total
    number = machine.submit(forced(256), 101.0)
    done = run(machine, until=110.0)
    assert {emission.request_id for _, emission in done.emissions} == {number}
    assert machine.counters().generation_tokens_total > made + 256 * strangers
    assert 0.01 < (1 / done.rate(number)) / before - 1 < 0.03
    machine.inject(Drift(kind=DriftKind.FOREIGN_TRAFFIC, magnitude=0), 110.0)
    assert machine.counters().running == 0
    assert machine.next_at() is None


def test_foreign_traffic_wakes_an_engine_that_rests_and_one_that_hung() -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.HANG, magnitude=1), 0.0)
    machine.inject(Drift(kind=DriftKind.FOREIGN_TRAFFIC, magnitude=0.05), 0.0)
    assert machine.next_at() is None
    machine.inject(Drift(kind=DriftKind.HANG, magnitude=0), 5.0)
    assert run(machine, until=10.0).emissions == []
    assert machine.counters().running > 0


def test_a_stop_tells_of_our_requests_and_not_of_strangers() -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.FOREIGN_TRAFFIC, magnitude=0.05), 0.0)
    run(machine, until=1.0)
    mine = machine.submit(forced(500), 1.0)
    run(machine, until=2.0)
    assert [emission.request_id for emission in machine.abort_all(2.0)] == [mine]


# --- what waits for a start ------------------------------------------------------------------------------------------


def started(environment: dict[str, str], kind: DriftKind, name: str = "kimi-k2.5-int4") -> SimEngine:
    given = quiet(preset(name))
    host = GpuHost(given.box)
    host.inject(Drift(kind=kind, magnitude=1), 0.0)
    return SimEngine(given, seed=1, environment=environment, arguments=(), started_at=LONG_AGO, host=host)


def test_false_peer_access_hangs_the_start_that_uses_it() -> None:
    assert started({"NCCL_P2P_LEVEL": "SYS"}, DriftKind.P2P_HANG).allreduce.outcome == "hangs"
    assert started({}, DriftKind.P2P_HANG).allreduce.outcome == "ready"


def words(machine: SimEngine) -> str:
    number = machine.submit(forced(30, seed=5), 0.0)
    return "".join(token.text for _, emission in run(machine).of(number) for token in emission.tokens)


def test_wrong_sums_of_a_forced_protocol_are_garbage_in_the_answers() -> None:
    right = words(engine(CALM))
    assert words(started({"NCCL_PROTO": "LL128"}, DriftKind.LL128_CORRUPT)) != right
    assert words(started({}, DriftKind.LL128_CORRUPT)) == right
    assert words(started({"NCCL_PROTO": "LL128"}, DriftKind.P2P_CORRUPT)) == right
