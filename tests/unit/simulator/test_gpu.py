"""Memory, power and errors of the simulated cards, and the plan of a start on them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.simulator.drifting import Drifts
from gateway.simulator.gpu import RESERVED_BYTES, GpuHost, Work
from gateway.simulator.loading import Phase, needed_bytes, plan_start
from gateway.simulator.nccl import AllReduce, Outcome, resolve
from gateway.simulator.physics import decode_parts
from gateway.simulator.presets import Preset
from gateway.simulator.signs import POWER_CAP_BIT
from tests.fakes.presets import preset

KIMI = preset()
H200 = preset("qwen3-8b-h200")
GIB = 1024**3


def allreduce(given: Preset = KIMI, **environment: str) -> AllReduce:
    return resolve(given.box, environment, hidden=given.model.hidden)


def nothing(given: Preset = KIMI) -> Drifts:
    return Drifts(decode_parts(given, allreduce(given), 1), context_s=given.pace.context_s)


def test_memory_is_held_by_process_and_free_when_it_ends() -> None:
    host = GpuHost(KIMI.box)
    free = host.free_bytes(0)
    host.hold(10, "VLLM::Worker_TP0", bytes_each=80 * GIB, gpus=(0,))
    host.hold(11, "VLLM::Worker_TP1", bytes_each=80 * GIB, gpus=(1,))
    reading = host.reading(0, Work(streams=0), drifts=nothing())
    assert [(process.pid, process.bytes_held) for process in reading.processes] == [(10, 80 * GIB)]
    assert reading.memory_used_bytes == 80 * GIB + RESERVED_BYTES
    assert host.free_bytes(0) == free - 80 * GIB
    host.release(10)
    host.release(10)
    assert host.free_bytes(0) == free


def test_a_wedged_card_holds_memory_for_nobody() -> None:
    host = GpuHost(KIMI.box)
    host.wedge(3, 70 * GIB)
    reading = host.reading(3, Work(streams=0), drifts=nothing())
    assert reading.processes == ()
    assert reading.memory_used_bytes == 70 * GIB + RESERVED_BYTES
    host.wedge(3, 0)
    assert host.free_bytes(3) == host.free_bytes(2)


def test_errors_of_the_driver_are_kept_with_their_instant() -> None:
    host = GpuHost(KIMI.box)
    host.xid(79, gpu=2, now=5.0)
    assert [(event.at, event.gpu, event.code) for event in host.xids] == [(5.0, 2, 79)]


@pytest.mark.parametrize(
    "streams, power_w, clock_mhz, reasons",
    [(0, 130, 1980, 1), (1, 497, 1980, 0), (64, 640, 1505, POWER_CAP_BIT)],
)
def test_the_readings_are_those_of_the_recorded_card(streams: int, power_w: int, clock_mhz: int, reasons: int) -> None:
    host = GpuHost(H200.box)
    host.hold(719, "VLLM::EngineCor", bytes_each=129_534 * 1024**2)
    reading = host.reading(0, Work(streams=streams), drifts=nothing(H200))
    assert reading.power_w == pytest.approx(power_w, rel=0.06)
    assert reading.sm_clock_mhz == clock_mhz
    assert reading.reasons == reasons
    assert "simulated" in reading.name


def test_a_card_without_a_server_rests_deeper() -> None:
    assert GpuHost(H200.box).reading(0, Work(streams=0), drifts=nothing(H200)).power_w == 84


def test_a_start_goes_through_its_phases_in_the_published_time() -> None:
    plan = plan_start(KIMI, allreduce(), free_bytes=GpuHost(KIMI.box).free_bytes(0))
    assert [span.phase for span in plan.spans] == list(Phase)
    assert plan.spans[-1].to_s == pytest.approx(36 * 60)
    assert (plan.outcome, plan.exit_code) == (Outcome.READY, None)


def test_time_can_be_compressed() -> None:
    plan = plan_start(KIMI, allreduce(), free_bytes=KIMI.box.memory_bytes, speed=360.0)
    assert plan.spans[-1].to_s == pytest.approx(6.0)
    assert all(a.to_s == b.from_s for a, b in zip(plan.spans, plan.spans[1:], strict=False))


def test_a_start_on_a_full_card_dies_after_its_workers_came_up() -> None:
    plan = plan_start(H200, allreduce(H200), free_bytes=11 * GIB)
    assert plan.spans[-1].phase is Phase.WORKERS
    assert plan.spans[-1].to_s == pytest.approx(55.5, rel=0.03)
    assert plan.exit_code == 1
    assert "Free memory on device" in plan.reason
    assert needed_bytes(H200) > 120 * GIB


def test_a_wrong_value_dies_at_nccl_and_false_peer_access_hangs_there() -> None:
    free = KIMI.box.memory_bytes
    dies = plan_start(KIMI, allreduce(NCCL_PROTO="bad"), free_bytes=free)
    assert (dies.spans[-1].phase, dies.exit_code) == (Phase.NCCL, 1)
    false = replace(KIMI, box=replace(KIMI.box, p2p_hangs=True))
    hangs = plan_start(false, allreduce(false, NCCL_P2P_LEVEL="SYS"), free_bytes=free)
    assert hangs.spans[-1].phase is Phase.NCCL
    assert hangs.spans[-1].to_s is None
    assert (hangs.outcome, hangs.exit_code) == (Outcome.HANGS, None)
