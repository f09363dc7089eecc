"""What the gateway must reach, beside what the run found. Shows; never fails a run.

The worker alone is what a user waits for; all processes are what the machine pays (the worker, control with its
metrics and history, the supervisor). Both are shown against the whole of the peer.
"""

from __future__ import annotations

from benchmarks.figures import difference, spread
from benchmarks.results import Run
from benchmarks.summary import NONE, Costs, latency_medians, number, shown

GATEWAY = "pacekeeper"
_RATIOS = (
    ("P1", "stream", "nginx", "CPU per chunk / nginx's", "goal 1.25, floor 1.5"),
    ("P2", "stream", "vllm-router", "CPU per chunk / vllm-router's", "<= 1.0"),
    ("P3", "request", "vllm-router", "CPU per short request / vllm-router's", "<= 1.0"),
    ("naive", "stream", "plain-aiohttp", "CPU per chunk / plain aiohttp's", "< 1.0"),
    ("naive", "request", "plain-aiohttp", "CPU per short request / plain aiohttp's", "< 1.0"),
)
_LATENCIES = (
    ("ttft_p50_us", "added TTFT p50"),
    ("ttft_p99_us", "added TTFT p99"),
    ("lag_p50_us", "added chunk latency p50"),
    ("lag_p99_us", "added chunk latency p99"),
)


def _cost_rows(run: Run) -> list[list[str]]:
    rows = []
    for target, kind, reference, what, wanted in _RATIOS:
        costs = Costs(run, kind)
        worker = costs.ratio(GATEWAY, reference, figure="worker_us")
        whole = costs.ratio(GATEWAY, reference, figure="total_us")
        if worker is not None:
            rows.append([target, what, wanted, shown(worker, 2), shown(whole, 2)])
    return rows


def _latency_rows(run: Run) -> list[list[str]]:
    rows = []
    for level in sorted({one.level for one in run.latencies}):
        direct, nginx, gateway = (latency_medians(run, name, level) for name in ("direct", "nginx", GATEWAY))
        for name, what in _LATENCIES:
            ours = difference(gateway[name], direct[name])
            theirs = difference(nginx[name], direct[name])
            if ours is None or theirs is None:
                continue
            limit = theirs + 100 if name.endswith("p50_us") else 2 * theirs
            rows.append(["P4", f"{what}, {level} streams", f"<= {limit:.0f} us", f"{ours:.0f} us", NONE])
    return rows


def _scale_row(run: Run) -> list[list[str]]:
    levels = sorted({cost.level for cost in run.costs if cost.kind == "scale" and cost.relay == GATEWAY})
    if len(levels) < 2:
        return []
    few, many = (Costs(run, "scale", level).spread(GATEWAY, "worker_us") for level in (levels[0], levels[-1]))
    if few is None or many is None:
        return []
    found = f"{many.median / few.median:.2f}"
    return [["P8", f"CPU per chunk, {levels[-1]} / {levels[0]} streams", "0.8 to 1.2", found, NONE]]


def judged(run: Run) -> list[list[str]]:
    """Rows of target, figure, wanted, the worker's and all processes' value; none where nothing was measured."""
    rows = _cost_rows(run) + _latency_rows(run)
    pairs = [pair for pair in run.paces if pair.direct_tps and pair.relayed_tps]
    if kept := spread([pair.relayed_tps / pair.direct_tps for pair in pairs]):
        rows.append(["P5", "single-stream tok/s / direct", ">= 0.998", shown(kept, 4), NONE])
    for figure in run.memories:
        if figure.relay == GATEWAY and figure.bytes_per_idle_stream is not None:
            each = number(figure.bytes_per_idle_stream / 1024, 1)
            rows.append(["P6", "memory per open idle stream", "<= 18 KiB", NONE, f"{each} KiB"])
    return rows + _scale_row(run)
