"""The all-reduce: what NCCL believes, what it takes, what it costs, and how environments end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.simulator.nccl import AllReduce, Backend, Outcome, Transport, resolve
from gateway.simulator.physics import payload_bytes, prefill_parts, single_stream_tps, tokens_per_step
from gateway.simulator.presets import Box, Link
from tests.fakes.presets import preset, quiet

HEALTHY = preset().box
BROKEN = preset("kimi-k2.5-int4-turin").box
DECODE = 14_336


def started(environment: dict[str, str], *, box: Box = HEALTHY, hidden: int = 7168, custom: bool = True) -> AllReduce:
    return resolve(box, environment, hidden=hidden, custom=custom)


def rate(environment: dict[str, str], *, box: Box = HEALTHY) -> float:
    return single_stream_tps(preset(), started(environment, box=box), context_tokens=356)


@pytest.mark.parametrize("protocol, us", [("LL", 22), ("LL128", 50), ("Simple", 89)])
def test_the_belief_at_the_decode_payload_is_that_of_the_cost_model(protocol: str, us: float) -> None:
    believed = started({"NCCL_PROTO": "LL,LL128,Simple"}).believed_s("Ring", protocol, DECODE)
    assert believed * 1e6 == pytest.approx(us, rel=0.05)


def test_32_kilobytes_by_ll_are_believed_to_take_21_8_us() -> None:
    assert started({}).believed_s("Ring", "LL", 32_768) * 1e6 == pytest.approx(21.8, abs=0.05)


def test_a_healthy_graph_takes_ll_at_decode_size_and_simple_for_prompts() -> None:
    assert started({}).choice(DECODE) == ("Ring", "LL")
    assert started({}).choice(14_700_000) == ("Ring", "Simple")


def test_a_broken_graph_takes_simple_from_a_few_kilobytes_on() -> None:
    assert started({}, box=BROKEN).choice(4096) == ("Ring", "LL")
    assert started({}, box=BROKEN).choice(DECODE)[1] == "Simple"


def test_forcing_ll_changes_nothing_on_a_healthy_box_and_much_on_a_broken_one() -> None:
    forced = {"NCCL_PROTO": "LL,Simple;allreduce:LL", "NCCL_P2P_LEVEL": "SYS"}
    assert rate({"NCCL_PROTO": "LL"}) == rate({})
    assert rate(forced, box=BROKEN) > 1.5 * rate({}, box=BROKEN)
    assert rate({"NCCL_PROTO": "LL"}, box=BROKEN) > 1.2 * rate({}, box=BROKEN)


def test_forcing_ll_makes_prompts_slower() -> None:
    stock, forced = started({}), started({"NCCL_PROTO": "LL,Simple;allreduce:LL"})
    assert forced.seconds(14_700_000) > 1.5 * stock.seconds(14_700_000)
    slow, fast = (prefill_parts(preset(), given, 1024) for given in (forced, stock))
    assert slow.wire_s > fast.wire_s
    assert slow.computing_s == fast.computing_s


def test_a_graph_file_mends_a_broken_search() -> None:
    assert started({"NCCL_GRAPH_FILE": "/etc/turin-8gpu.xml"}, box=BROKEN).choice(DECODE) == ("Ring", "LL")


def test_a_graph_file_for_another_number_of_gpus_fails() -> None:
    start = started({"NCCL_GRAPH_FILE": "/etc/turin-4gpu.xml"}, box=BROKEN)
    assert start.outcome is Outcome.FAILS
    assert "unhandled system error" in start.reason


@pytest.mark.parametrize(
    "environment, transport",
    [
        ({}, Transport.SHM),
        ({"NCCL_P2P_LEVEL": "SYS"}, Transport.P2P),
        ({"NCCL_P2P_LEVEL": "4"}, Transport.P2P),
        ({"NCCL_P2P_LEVEL": "9"}, Transport.P2P),
        ({"NCCL_P2P_LEVEL": "PHB"}, Transport.SHM),
        ({"NCCL_P2P_LEVEL": "sys"}, Transport.SHM),
        ({"NCCL_P2P_LEVEL": "NODE"}, Transport.SHM),
        ({"NCCL_P2P_LEVEL": "SYS", "NCCL_P2P_DISABLE": "1"}, Transport.SHM),
        ({"NCCL_P2P_LEVEL": "SYS", "NCCL_P2P_DISABLE": "true"}, Transport.P2P),
        ({"NCCL_SHM_DISABLE": "1"}, Transport.NET),
    ],
)
def test_the_transport_follows_the_environment_as_nccl_reads_it(
    environment: dict[str, str], transport: Transport
) -> None:
    assert started(environment).transport is transport


def test_before_2_23_peer_access_is_used_wherever_it_can() -> None:
    assert started({}, box=replace(HEALTHY, nccl_version="2.22.3")).transport is Transport.P2P


def test_peer_access_is_worth_a_few_percent_and_sockets_cost_much() -> None:
    assert rate({"NCCL_P2P_LEVEL": "SYS"}) == pytest.approx(1.036 * rate({}), rel=0.01)
    assert rate({"NCCL_SHM_DISABLE": "1"}) < 0.5 * rate({})


def test_peer_access_that_does_not_work_hangs() -> None:
    box = replace(HEALTHY, p2p_hangs=True)
    assert started({}, box=box).outcome is Outcome.READY
    assert started({"NCCL_P2P_LEVEL": "SYS"}, box=box).outcome is Outcome.HANGS


def test_a_wrong_value_fails_and_says_why() -> None:
    start = started({"NCCL_PROTO": "LL, Simple"})
    assert start.outcome is Outcome.FAILS
    assert "NCCL_PROTO" in start.reason


def test_ll128_is_taken_when_named_up_to_2_30_and_no_longer_in_2_31() -> None:
    named = {"NCCL_PROTO": "LL,LL128,Simple"}
    assert ("Ring", "LL128") in started(named).allowed()
    assert ("Ring", "LL128") not in started({}).allowed()
    newer = replace(HEALTHY, nccl_version="2.31.2")
    assert ("Ring", "LL128") not in started(named, box=newer).allowed()
    assert started({"NCCL_PROTO": "LL128"}, box=newer).outcome is Outcome.FAILS


def test_on_nvlink_2_31_takes_ll128_alone_or_among_others() -> None:
    nvlink = replace(HEALTHY, link=Link.NVL, nccl_version="2.31.2")
    for named in ({"NCCL_PROTO": "LL128"}, {"NCCL_PROTO": "LL,LL128,Simple"}, {}):
        start = started(named, box=nvlink, custom=False)
        assert start.outcome is Outcome.READY
        assert ("Ring", "LL128") in start.allowed()
    assert started({"NCCL_PROTO": "^LL128"}, box=nvlink, custom=False).allowed()[0] == ("Ring", "LL")
    assert ("Ring", "LL128") not in started({"NCCL_PROTO": "^LL128"}, box=nvlink, custom=False).allowed()


def test_channels_matter_at_megabytes_only() -> None:
    many, few, stock = started({"NCCL_MIN_CTAS": "16"}), started({"NCCL_MAX_CTAS": "1"}), started({})
    assert many.seconds(14_700_000) < stock.seconds(14_700_000) < few.seconds(14_700_000)
    assert many.seconds(DECODE) == pytest.approx(stock.seconds(DECODE), rel=0.01)
    assert (many.channels, few.channels, stock.channels) == (16, 1, 4)


def test_the_pcie_kernel_takes_9_to_14_percent_off_a_token() -> None:
    asked = {"VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC": "1"}
    assert started(asked).backend is Backend.PCIE_IPC
    assert 0.86 <= rate({}) / rate(asked) <= 0.91
    assert started(asked).seconds(1_000_000) == started({}).seconds(1_000_000)


@pytest.mark.parametrize(
    "box, hidden",
    [
        (replace(HEALTHY, sm=90), 7168),
        (replace(HEALTHY, gpus=6), 7168),
        (replace(HEALTHY, gpus=4), 6144),
        (replace(HEALTHY, vllm_version="0.30.1"), 7168),
    ],
)
def test_the_pcie_kernel_falls_back_where_it_cannot_run(box: Box, hidden: int) -> None:
    asked = {"VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC": "1"}
    assert started(asked, box=box, hidden=hidden).backend is Backend.NCCL


def test_nccl_is_not_asked_where_vllm_has_its_own_kernel() -> None:
    nvlink = replace(HEALTHY, link=Link.NVL)
    assert started({}, box=nvlink).backend is Backend.CUSTOM
    assert started({}, box=nvlink, custom=False).backend is Backend.NCCL
    pair = replace(HEALTHY, gpus=2, link=Link.PIX)
    assert started({}, box=pair).backend is Backend.CUSTOM
    assert started({"NCCL_P2P_DISABLE": "1"}, box=pair).backend is Backend.NCCL
    assert started({}, box=nvlink).seconds(DECODE) < 7e-6
    assert started({}, box=nvlink).seconds(9e6) == started({}, box=nvlink).nccl_s(9e6)


def test_one_gpu_needs_nobody_and_no_value_can_hurt_it() -> None:
    start = started({"NCCL_PROTO": "nonsense"}, box=replace(HEALTHY, gpus=1))
    assert (start.backend, start.outcome, start.seconds(DECODE)) == (Backend.NONE, Outcome.READY, 0.0)


def test_batch_invariance_overwrites_the_profile() -> None:
    start = started({"VLLM_BATCH_INVARIANT": "1", "NCCL_PROTO": "LL"})
    assert start.choice(DECODE) == ("Tree", "Simple")
    assert start.channels == 1
    newer = replace(HEALTHY, nccl_version="2.31.0")
    assert started({"VLLM_BATCH_INVARIANT": "1"}, box=newer).outcome is Outcome.FAILS


def test_drafts_widen_the_payload_and_bring_tokens() -> None:
    glm = quiet(preset("glm-5-nvfp4"))
    assert payload_bytes(glm, 2) == 6144 * 2 * 2
    assert tokens_per_step(glm) == pytest.approx(1.75)
    assert tokens_per_step(preset()) == 1
    assert prefill_parts(glm, started({}), 0).computing_s == 0


def test_more_channels_and_larger_buffers_are_paid_with_memory() -> None:
    assert started({}).extra_buffer_bytes() == 0
    spread = {"NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "32", "NCCL_BUFFSIZE": "33554432"}
    assert started(spread).extra_buffer_bytes() == 2 * (16 * 32 - 4 * 4) * 1024**2
    assert started({"NCCL_BUFFSIZE": "1024"}).extra_buffer_bytes() == 0
    assert started(spread, box=preset("qwen3-8b-h200").box).extra_buffer_bytes() == 0


def test_a_box_that_does_not_bear_ll128_gives_wrong_sums_at_the_sizes_where_it_is_chosen() -> None:
    box = replace(HEALTHY, ll128_corrupts=True)
    named = started({"NCCL_PROTO": "LL,LL128,Simple"}, box=box)
    assert not named.corrupts(DECODE)  # LL is chosen at this size
    assert named.corrupts(200 * DECODE)
    assert not named.corrupts(4096 * DECODE)  # Simple is
    assert not started({}, box=box).corrupts(200 * DECODE)
    assert started({"NCCL_PROTO": "LL128"}, box=box).corrupts(DECODE)
    assert not started({"NCCL_PROTO": "LL128"}).corrupts(DECODE)
    assert not started({}, box=replace(box, gpus=1)).may_corrupt()


def test_false_peer_access_gives_wrong_sums_to_the_own_kernel_only() -> None:
    two = replace(HEALTHY, gpus=2, link=Link.PIX, p2p_corrupts=True)
    assert started({}, box=two).corrupts(DECODE)
    assert not started({}, box=two, custom=False).corrupts(DECODE)
    assert not started({"NCCL_P2P_DISABLE": "1"}, box=two).corrupts(DECODE)
