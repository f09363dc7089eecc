"""What the run found, beside what is wanted."""

from benchmarks.results import (
    CostRound,
    LatencyRound,
    Machine,
    MemoryFigure,
    PacePair,
    PromptRound,
    Run,
    WorkersRound,
)
from benchmarks.targets import judged


def empty() -> Run:
    here = Machine(date="2026", cpu_model="c", cores=2, kernel="k", python="p", revision="r", load_average=0)
    return Run(machine=here, settings={})


def cost(relay: str, us: float, *, kind: str = "stream", level: int = 64) -> CostRound:
    return CostRound(
        relay=relay,
        kind=kind,
        level=level,
        number=0,
        window_s=2.0,
        units=5000,
        cpu_us={"worker": us, "control": 2.0} if relay == "pacekeeper" else {"all": us},
        waited_share=0.0,
        load_core_busy=0.2,
        foreign_share=0.0,
        lag_p50_us=None,
        lag_p99_us=None,
        failures=[],
    )


def latency(relay: str, us: float) -> LatencyRound:
    return LatencyRound(
        relay=relay,
        level=16,
        number=0,
        ttft_p50_us=us,
        ttft_p99_us=us * 2,
        probes=10,
        lag_p50_us=us / 2,
        lag_p99_us=us,
        lags=40,
        failures=[],
    )


def test_nothing_is_judged_where_nothing_was_measured() -> None:
    assert judged(empty()) == []
    run = empty()
    run.costs = [cost("pacekeeper", 25.0)]
    assert judged(run) == []


def test_cost_is_shown_against_each_peer_for_the_worker_and_for_all_processes() -> None:
    run = empty()
    run.costs = [cost("pacekeeper", 24.0), cost("nginx", 20.0), cost("vllm-router", 24.0)]
    first, second = judged(run)
    assert first[0] == "P1"
    assert first[3:] == ["1.20 (1.20-1.20)", "1.30 (1.30-1.30)", "floor met"]
    assert second[0] == "P2"
    assert second[3:] == ["1.00 (1.00-1.00)", "1.08 (1.08-1.08)", "**missed**"]


def test_added_latency_is_held_against_what_nginx_adds() -> None:
    run = empty()
    run.latencies = [latency("direct", 100.0), latency("nginx", 150.0), latency("pacekeeper", 300.0)]
    rows = {row[1]: [*row[2:4], row[5]] for row in judged(run)}
    assert rows == {
        "added TTFT p50, 16 streams": ["<= 150 us", "200 us", "**missed**"],
        "added TTFT p99, 16 streams": ["<= 200 us", "400 us", "**missed**"],
        "added chunk latency p50, 16 streams": ["<= 125 us", "100 us", "met"],
        "added chunk latency p99, 16 streams": ["<= 100 us", "200 us", "**missed**"],
    }


def test_pace_memory_tap_and_scale_have_a_row_each() -> None:
    run = empty()
    run.tap_us = [2.0, 3.5, 2.5]
    run.paces = [PacePair(relay="pacekeeper", number=0, direct_tps=80.0, relayed_tps=79.92)]
    run.memories = [
        MemoryFigure(
            relay="pacekeeper",
            resident_bytes={"worker": 1},
            proportional_bytes={"worker": 1},
            idle_streams=256,
            bytes_per_idle_stream=17.5 * 1024,
        )
    ]
    run.costs = [cost("pacekeeper", us, kind="scale", level=level) for us, level in ((20.0, 16), (22.0, 1024))]
    assert [(row[0], *row[2:]) for row in judged(run)] == [
        ("P5", ">= 0.998", "0.9990 (0.9990-0.9990)", "-", "met"),
        ("P6", "<= 18 KiB", "-", "17.5 KiB", "met"),
        ("P7", "<= 3 us", "2.50 (2.00-3.50) us", "-", "met"),
        ("P8", "0.8 to 1.2, less is no fault", "1.10", "-", "met"),
    ]


def with_workers(
    workers: int, per_s: float, *, kind: str = "requests", busy: float = 1.0, failures: int = 0
) -> WorkersRound:
    return WorkersRound(
        workers=workers,
        kind=kind,
        number=0,
        per_s=per_s,
        worker_busy=[busy] * workers,
        rest_busy=0.1,
        engine_busy=0.5,
        client_busy=0.5,
        failures=failures,
    )


def test_requests_are_held_against_one_worker_as_they_came_and_chunks_as_if_all_were_busy() -> None:
    run = empty()
    run.workers = [
        *(with_workers(1, 1000.0), with_workers(4, 3300.0)),
        *(with_workers(1, 800.0, kind="streams", busy=0.8), with_workers(4, 3200.0, kind="streams", busy=0.9)),
    ]
    assert [row[2:] for row in judged(run)] == [
        [">= 3.40", "3.30 (3.30-3.30)", "-", "**missed**"],
        [">= 3.40", "3.56 (3.56-3.56)", "-", "met"],
    ]


def test_a_round_of_workers_with_failures_counts_for_nothing() -> None:
    run = empty()
    run.workers = [with_workers(1, 1000.0), with_workers(2, 2000.0, failures=1)]
    assert judged(run) == []


def prompt(relay: str, ms: float) -> PromptRound:
    return PromptRound(
        relay=relay,
        shape="one text",
        number=0,
        prompts=10,
        answer_p50_us=ms * 1000,
        answer_p99_us=ms * 2000,
        stall_p50_us=ms * 500,
        stall_worst_us=ms * 1500,
        quiet_p99_us=200.0,
        failures=[],
    )


def test_long_prompts_are_held_against_direct() -> None:
    run = empty()
    run.prompts = [prompt("direct", 2.0), prompt("pacekeeper", 6.0)]
    assert [row[1:4] + row[5:] for row in judged(run)] == [
        ["1 MiB prompt, one text: added latency p50", "<= 5 ms", "4.0 ms", "met"],
        ["1 MiB prompt, one text: worst stall over direct", "<= 5 ms", "6.0 ms", "**missed**"],
    ]
