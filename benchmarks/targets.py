"""What the gateway must reach, beside what the run found: one row for each of P1 to P10. Shows; never fails a run.

The worker alone is what a user waits for; all processes are what the machine pays (the worker, control with its
metrics and history, the supervisor). Both are shown against the whole of the peer; the verdict is about all processes.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figures import Spread, difference, spread
from benchmarks.results import PromptRound, Run
from benchmarks.summary import NONE, Costs, latency_medians, number, shown

GATEWAY = "pacekeeper"
MET, MISSED = "met", "**missed**"
P1_GOAL, P1_FLOOR = 1.25, 1.5
_RATIOS = (
    ("P1", "stream", "nginx", "CPU per chunk / nginx's", "goal 1.25, floor 1.5", P1_FLOOR),
    ("P2", "stream", "vllm-router", "CPU per chunk / vllm-router's", "<= 1.0", 1.0),
    ("P3", "request", "vllm-router", "CPU per short request / vllm-router's", "<= 1.0", 1.0),
    ("naive", "stream", "plain-aiohttp", "CPU per chunk / plain aiohttp's", "< 1.0", 1.0),
    ("naive", "request", "plain-aiohttp", "CPU per short request / plain aiohttp's", "< 1.0", 1.0),
)
_LATENCIES = (
    ("ttft_p50_us", "added TTFT p50"),
    ("ttft_p99_us", "added TTFT p99"),
    ("lag_p50_us", "added chunk latency p50"),
    ("lag_p99_us", "added chunk latency p99"),
)
_PACE_KEPT = 0.998
_IDLE_KIB = 18.0
_TAP_US = 3.0
_FLAT = (0.8, 1.2)
_WORKERS_SHARE = 0.85
_PROMPT_MS = 5.0
Row = list[str]
"""Target, figure, wanted, the worker's value, all processes' value, verdict."""


def verdict(*, met: bool) -> str:
    """How a verdict is shown."""
    return MET if met else MISSED


def _cost_rows(run: Run) -> Iterator[Row]:
    for target, kind, reference, what, wanted, limit in _RATIOS:
        costs = Costs(run, kind)
        worker = costs.ratio(GATEWAY, reference, figure="worker_us")
        whole = costs.ratio(GATEWAY, reference, figure="total_us")
        if worker is None or whole is None:
            continue
        told = verdict(met=whole.median <= limit)
        if target == "P1" and whole.median <= limit:
            told = "goal met" if whole.median <= P1_GOAL else "floor met"
        yield [target, what, wanted, shown(worker, 2), shown(whole, 2), told]


def _latency_rows(run: Run) -> Iterator[Row]:
    for level in sorted({one.level for one in run.latencies}):
        direct, nginx, gateway = (latency_medians(run, name, level) for name in ("direct", "nginx", GATEWAY))
        for name, what in _LATENCIES:
            ours = difference(gateway[name], direct[name])
            theirs = difference(nginx[name], direct[name])
            if ours is None or theirs is None:
                continue
            limit = theirs + 100 if name.endswith("p50_us") else 2 * theirs
            told = verdict(met=ours <= limit)
            yield ["P4", f"{what}, {level} streams", f"<= {limit:.0f} us", f"{ours:.0f} us", NONE, told]


def _pace_rows(run: Run) -> Iterator[Row]:
    pairs = [pair for pair in run.paces if pair.direct_tps and pair.relayed_tps]
    if kept := spread([pair.relayed_tps / pair.direct_tps for pair in pairs]):
        told = verdict(met=kept.median >= _PACE_KEPT)
        yield ["P5", "single-stream tok/s / direct", f">= {_PACE_KEPT:g}", shown(kept, 4), NONE, told]


def _memory_rows(run: Run) -> Iterator[Row]:
    for figure in run.memories:
        if figure.relay == GATEWAY and figure.bytes_per_idle_stream is not None:
            each = figure.bytes_per_idle_stream / 1024
            what = f"memory per open idle stream, of {figure.idle_streams}"
            yield [
                *("P6", what, f"<= {_IDLE_KIB:g} KiB", NONE, f"{number(each, 1)} KiB"),
                verdict(met=each <= _IDLE_KIB),
            ]


def _tap_rows(run: Run) -> Iterator[Row]:
    if cost := spread(run.tap_us):
        told = verdict(met=cost.median <= _TAP_US)
        yield ["P7", "tap per plain chat chunk, alone", f"<= {_TAP_US:g} us", f"{shown(cost, 2)} us", NONE, told]


def _scale_rows(run: Run) -> Iterator[Row]:
    levels = sorted({cost.level for cost in run.costs if cost.kind == "scale" and cost.relay == GATEWAY})
    if len(levels) < 2:
        return
    few, many = (Costs(run, "scale", level).spread(GATEWAY, "worker_us") for level in (levels[0], levels[-1]))
    if few is None or many is None:
        return
    grown = many.median / few.median
    # Cheaper with more streams is no fault: one look at the sockets then serves several.
    told = verdict(met=grown <= _FLAT[1])
    what = f"CPU per chunk, {levels[-1]} / {levels[0]} streams"
    yield ["P8", what, f"{_FLAT[0]:g} to {_FLAT[1]:g}, less is no fault", f"{grown:.2f}", NONE, told]


def speedup(run: Run, kind: str, workers: int) -> Spread | None:
    """Throughput with so many workers over that with one, round by round.

    Of chunks it is what the workers could do if they were busy all the time: they are offered a little less.
    """
    values = []
    alone = {one.number: one for one in run.workers if (one.kind, one.workers) == (kind, 1)}
    for one in run.workers:
        base = alone.get(one.number)
        if (one.kind, one.workers) == (kind, workers) and base is not None and not one.failures:
            mine, its = (one.per_s, base.per_s) if kind == "requests" else (one.capacity_per_s, base.capacity_per_s)
            values += [mine / its] if its else []
    return spread(values)


def _workers_rows(run: Run) -> Iterator[Row]:
    for workers in sorted({one.workers for one in run.workers} - {1}):
        for kind, what in (("requests", "short requests/s"), ("streams", "chunks/s of busy workers")):
            if found := speedup(run, kind, workers):
                limit = _WORKERS_SHARE * workers
                told = verdict(met=found.median >= limit)
                yield ["P9", f"{what}, {workers} workers / one", f">= {limit:.2f}", shown(found, 2), NONE, told]


def prompt_figures(run: Run, relay: str, shape: str) -> dict[str, float | None]:
    """Medians over the rounds of a relay's figures with long prompts, in milliseconds."""
    rounds = [one for one in run.prompts if (one.relay, one.shape) == (relay, shape) and not one.failures]
    names = ("answer_p50_us", "answer_p99_us", "stall_p50_us", "stall_worst_us", "quiet_p99_us")
    return {name: _median_ms(rounds, name) for name in names}


def _median_ms(rounds: list[PromptRound], name: str) -> float | None:
    value = spread([figure for one in rounds if (figure := getattr(one, name)) is not None])
    return value.median / 1000 if value else None


def _prompt_rows(run: Run) -> Iterator[Row]:
    for shape in dict.fromkeys(one.shape for one in run.prompts):
        direct, ours = (prompt_figures(run, name, shape) for name in ("direct", GATEWAY))
        for name, what in (("answer_p50_us", "added latency p50"), ("stall_worst_us", "worst stall over direct")):
            added = difference(ours[name], direct[name])
            if added is not None:
                told = verdict(met=added <= _PROMPT_MS)
                yield ["P10", f"1 MiB prompt, {shape}: {what}", f"<= {_PROMPT_MS:g} ms", f"{added:.1f} ms", NONE, told]


def judged(run: Run) -> list[Row]:
    """The rows of everything that was measured; none where nothing was."""
    groups = (
        *(_cost_rows, _latency_rows, _pace_rows, _memory_rows, _tap_rows),
        *(_scale_rows, _workers_rows, _prompt_rows),
    )
    return [row for group in groups for row in group(run)]
