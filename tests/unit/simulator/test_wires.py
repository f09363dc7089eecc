"""Published rows of NCCL's profiles: their signs and their rough size, on the boxes that they were published of."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.simulator.nccl import resolve
from gateway.simulator.physics import decode_parts, payload_bytes, tokens_per_step
from gateway.simulator.presets import Preset
from gateway.simulator.wires import along
from tests.fakes.presets import engine, forced, preset, quiet, run

STORY = preset()
TURIN = preset("kimi-k2.5-int4-turin")
DRAFTING = replace(  # K2.6 with three drafts: 125 tok/s at one user was published, so 2.5 tokens a step of 20 ms
    STORY,
    pace=replace(STORY.pace, draft_tokens=3, acceptance=0.68, overhead_s=STORY.pace.overhead_s + 0.0043),
)
GRAPH = {"NCCL_P2P_LEVEL": "SYS", "NCCL_GRAPH_FILE": "/etc/turin-8gpu.xml"}
LL = {"NCCL_P2P_LEVEL": "SYS", "NCCL_PROTO": "LL,Simple;allreduce:LL"}
THROUGHPUT = {"NCCL_P2P_DISABLE": "1", "NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "32", "NCCL_BUFFSIZE": "33554432"}


def tps(given: Preset, environment: dict[str, str], streams: int) -> float:
    """Decode tokens a second of so many streams together, 350 tokens of context each."""
    allreduce = resolve(given.box, environment, hidden=given.model.hidden)
    step_s = decode_parts(given, allreduce, streams).total_s() + given.pace.context_s * 350 * streams
    return streams * tokens_per_step(given) / step_s


def first_token_s(given: Preset, environment: dict[str, str], prompt: int) -> float:
    machine = engine(quiet(given), environment=environment)
    machine.submit(forced(4, prompt=prompt), 0.0)
    return run(machine).emissions[0][0]


@pytest.mark.parametrize(
    "proto, published", [("", 1001), ("LL", 998), ("Simple", 1109), ("LL,LL128,Simple", 1128), ("LL128", 1132)]
)
def test_32_drafting_streams_have_the_published_rate_under_each_protocol(proto: str, published: float) -> None:
    assert tps(DRAFTING, {"NCCL_PROTO": proto}, 32) == pytest.approx(published, rel=0.03)


def test_what_nccl_takes_by_itself_at_32_drafting_streams_is_not_what_is_fastest() -> None:
    stock, simple, mixed = (tps(DRAFTING, {"NCCL_PROTO": p}, 32) for p in ("", "Simple", "LL,LL128,Simple"))
    assert resolve(STORY.box, {}, hidden=7168).choice(payload_bytes(STORY, 128)) == ("Ring", "LL")
    assert simple / stock == pytest.approx(1.108, abs=0.02)
    assert mixed / stock == pytest.approx(1.127, abs=0.02)


def test_one_drafting_stream_has_the_published_rate_and_gains_little_by_peer_access() -> None:
    off, on = tps(DRAFTING, {}, 1), tps(DRAFTING, {"NCCL_P2P_LEVEL": "SYS"}, 1)
    assert off == pytest.approx(124.2, rel=0.03)
    assert 1.0 < on / off < 1.04


@pytest.mark.parametrize("size, before_us, after_us", [(32_768, 48.2, 26.2), (262_144, 56.5, 37.3)])
@pytest.mark.parametrize("cure", [GRAPH, LL])
def test_the_broken_box_has_the_published_latencies(
    size: int, before_us: float, after_us: float, cure: dict[str, str]
) -> None:
    assert resolve(TURIN.box, {}, hidden=7168).nccl_s(size) * 1e6 == pytest.approx(before_us, rel=0.01)
    assert resolve(TURIN.box, cure, hidden=7168).nccl_s(size) * 1e6 == pytest.approx(after_us, rel=0.01)


def test_a_prompt_on_the_broken_box_waits_as_long_as_published_and_after_the_graph_file_not() -> None:
    assert first_token_s(TURIN, GRAPH, 7750) == pytest.approx(1.07, rel=0.02)
    assert first_token_s(TURIN, {}, 7750) == pytest.approx(9.1, rel=0.02)
    assert first_token_s(TURIN, LL, 7750) > first_token_s(TURIN, GRAPH, 7750)


def test_giving_up_peer_access_for_channels_loses_one_user_and_wins_a_hundred_on_two_sockets() -> None:
    assert tps(TURIN, THROUGHPUT, 1) < 0.85 * tps(TURIN, GRAPH, 1)
    assert tps(TURIN, THROUGHPUT, 100) > 1.5 * tps(TURIN, GRAPH, 100)


def test_peer_access_wins_one_user_and_prompts_and_loses_many_users() -> None:
    peer = {"NCCL_P2P_LEVEL": "SYS"}
    assert tps(STORY, peer, 1) > 1.02 * tps(STORY, {}, 1)
    assert tps(STORY, peer, 100) < 0.97 * tps(STORY, {}, 100)
    assert first_token_s(STORY, {}, 8192) / first_token_s(STORY, peer, 8192) == pytest.approx(7.6 / 7.3, rel=0.01)


def test_a_measured_curve_is_straight_between_its_points_and_wider_only_in_its_last_piece() -> None:
    points = ((0.0, 1.0), (10.0, 2.0), (20.0, 4.0))
    assert [along(points, size, widened=2.0) for size in (0, 5, 10)] == [1.0, 1.5, 2.0]
    assert [along(points, size, widened=1.0) for size in (20, 30)] == [4.0, 6.0]
    assert along(points, 30, widened=2.0) == 4.0
