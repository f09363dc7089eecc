"""The Markdown table and the JSON file of a run. Rendering only; sums are made by `figures`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.figures import difference, spread
from benchmarks.picture import picture
from benchmarks.results import Run
from benchmarks.summary import NONE, Costs, latency_medians, number, shown
from benchmarks.targets import judged, prompt_figures, speedup

_MIB = 1024 * 1024


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cost_table(run: Run, kind: str, unit: str) -> str:
    costs = Costs(run, kind)
    header = [
        "relay",
        f"CPU us per {unit}",
        "worker only",
        "of nginx",
        "worker of nginx",
        "of vllm-router",
        "worker of vllm-router",
        "split (us)",
        f"{unit}s/s",
    ]
    rows = []
    for relay in run.notes:
        if relay in run.missing:
            reason = " ".join(run.missing[relay][:120].replace("|", "/").split())
            rows.append([relay, f"missing: {reason}", *[NONE] * (len(header) - 2)])
            continue
        rates = spread([cost.units / cost.window_s for cost in costs.by_relay.get(relay, {}).values()])
        rows.append(
            [
                relay,
                shown(costs.spread(relay, "total_us")),
                shown(costs.spread(relay, "worker_us")),
                shown(costs.ratio(relay, "nginx", figure="total_us"), 2),
                shown(costs.ratio(relay, "nginx", figure="worker_us"), 2),
                shown(costs.ratio(relay, "vllm-router", figure="total_us"), 2),
                shown(costs.ratio(relay, "vllm-router", figure="worker_us"), 2),
                costs.split(relay),
                number(rates.median if rates else None),
            ]
        )
    return table(header, rows)


def _latency_table(run: Run) -> str:
    good = [one for one in run.latencies if not one.failures]
    levels = sorted({one.level for one in good})
    header = ["relay", "streams", "TTFT p50", "TTFT p99", "event lag p50", "event lag p99", "probes", "events"]
    rows = []
    for level in levels:
        at_level = [one for one in good if one.level == level]
        direct = latency_medians(run, "direct", level)
        for relay in dict.fromkeys(one.relay for one in sorted(at_level, key=lambda one: one.relay != "direct")):
            rounds = [one for one in at_level if one.relay == relay]
            medians = latency_medians(run, relay, level)
            added = medians if relay == "direct" else {k: difference(v, direct[k]) for k, v in medians.items()}
            sign = "" if relay == "direct" else "+"
            cells = [NONE if value is None else f"{sign if value >= 0 else ''}{value:.0f}" for value in added.values()]
            counts = [str(sum(one.probes for one in rounds)), str(sum(one.lags for one in rounds))]
            rows.append([relay, str(level), *cells, *counts])
    return table(header, rows)


def _memory_table(run: Run) -> str:
    rows = []
    for figure in run.memories:
        resident = sum(figure.resident_bytes.values()) / _MIB
        proportional = sum(figure.proportional_bytes.values()) / _MIB
        split = ", ".join(f"{role} {value / _MIB:.0f}" for role, value in figure.resident_bytes.items())
        each = figure.bytes_per_idle_stream
        per_stream = NONE if each is None else f"{each / 1024:.1f}"
        rows.append([figure.relay, f"{resident:.0f}", f"{proportional:.0f}", split, per_stream])
    return table(["relay", "RSS MiB", "PSS MiB", "RSS split", "KiB per idle stream"], rows)


def _scale_table(run: Run) -> str:
    levels = sorted({cost.level for cost in run.costs if cost.kind == "scale"})
    names = dict.fromkeys(cost.relay for cost in run.costs if cost.kind == "scale")
    rows = [
        [name, *(shown(Costs(run, "scale", level).spread(name, "worker_us")) for level in levels)] for name in names
    ]
    return table(["relay", *(f"CPU us per chunk, {level} streams" for level in levels)], rows)


def _prompts_table(run: Run) -> str:
    names = ("answer_p50_us", "answer_p99_us", "stall_p50_us", "stall_worst_us", "quiet_p99_us")
    rows = []
    for shape in dict.fromkeys(one.shape for one in run.prompts):
        direct = prompt_figures(run, "direct", shape)
        for relay in dict.fromkeys(one.relay for one in run.prompts):
            figures = prompt_figures(run, relay, shape)
            added = difference(figures["answer_p50_us"], direct["answer_p50_us"])
            cells = [number(figures[name], 1) for name in names]
            rows.append([relay, shape, NONE if relay == "direct" else number(added, 1), *cells])
    header = ["relay", "prompt", "added p50", "answer p50", "answer p99", "stall p50", "worst stall", "no prompt, p99"]
    return table(header, rows)


def _workers_table(run: Run) -> str:
    header = ["workers", "load", "per second", "of one", "each worker busy", "rest", "busiest engine", "busiest client"]
    rows = []
    for kind in ("requests", "streams"):
        for workers in sorted({one.workers for one in run.workers}):
            rounds = [one for one in run.workers if (one.kind, one.workers) == (kind, workers)]
            busy = spread([share for one in rounds for share in one.worker_busy])
            rows.append(
                [
                    str(workers),
                    kind,
                    shown(spread([one.per_s for one in rounds]), 0),
                    shown(speedup(run, kind, workers), 2),
                    shown(busy, 2),
                    *(
                        number(max((getattr(one, name) for one in rounds), default=None), 2)
                        for name in ("rest_busy", "engine_busy", "client_busy")
                    ),
                ]
            )
    return table(header, rows)


def _extra_parts(run: Run) -> list[str]:
    parts = []
    if run.prompts:
        parts += [
            "## Prompts of 1 MiB, milliseconds (P10)",
            "A stall is how long an event of a stream beside them, one a millisecond, was under way at most.",
            _prompts_table(run),
        ]
    if run.workers:
        parts += [
            "## Workers (P9)",
            (
                "Everybody on a core of its own. Short requests: more than the workers can answer. Streams: they are "
                "offered a little less than they can relay, and `of one` is what they could do at the cost they had."
            ),
            _workers_table(run),
        ]
    if run.skipped:
        parts += ["## Left out", "\n".join(f"- {what}: {why}" for what, why in run.skipped.items())]
    return parts


def markdown(run: Run, *, image: str = "") -> str:
    """The whole report."""
    machine = run.machine
    parts = [
        f"# Side by side, {machine.date}",
        (
            f"{machine.cpu_model}, {machine.cores} cores, Linux {machine.kernel}, Python {machine.python}, revision "
            f"{machine.revision}, load average at the start {machine.load_average:.2f}, took {run.wall_s:.0f} s."
        ),
        "Medians over the rounds, smallest and largest in brackets; ratios are taken inside each round.",
    ]
    if image:
        parts.append(f"![The figures of this page as a picture]({image})")
    if verdicts := judged(run):
        header = ["target", "what", "wanted", "worker", "all processes", "verdict"]
        parts += ["## Targets", table(header, verdicts)]
    if any(cost.kind == "stream" for cost in run.costs):
        streams, pace = float(run.settings["streams"]), 1000 / float(run.settings["pace_ms"])
        parts += [
            f"## Streams: {streams:g} at {pace:g} tok/s, one chunk a token (P1, P2)",
            _cost_table(run, "stream", "chunk"),
        ]
    if any(cost.kind == "request" for cost in run.costs):
        connections = float(run.settings["connections"])
        parts += [
            f"## Short requests: {connections:g} connections, kept alive (P3)",
            _cost_table(run, "request", "request"),
        ]
    if run.latencies:
        parts += ["## Latency over direct, microseconds (P4)", _latency_table(run)]
    if run.paces:
        kept = spread(
            [pair.relayed_tps / pair.direct_tps for pair in run.paces if pair.direct_tps and pair.relayed_tps]
        )
        parts += ["## Single stream, token rate over direct (P5)", f"{shown(kept, 5)} over {len(run.paces)} pairs"]
    if run.memories:
        parts += ["## Memory (P6)", _memory_table(run)]
    if any(cost.kind == "scale" for cost in run.costs):
        parts += ["## Cost against the number of streams, 10 tok/s each (P8)", _scale_table(run)]
    parts += _extra_parts(run)
    parts += ["## Relays", "\n".join(f"- {name}: {note}" for name, note in run.notes.items())]
    if run.warnings:
        parts += ["## Warnings", "\n".join(f"- {warning}" for warning in run.warnings)]
    return "\n\n".join(parts) + "\n"


def write(run: Run, folder: Path, stem: str) -> Path:
    """Write `STEM.json`, `STEM.md` and `STEM.svg` into `folder`; the JSON's path comes back."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
    drawn = picture(run)
    if drawn:
        (folder / f"{stem}.svg").write_text(drawn)
    (folder / f"{stem}.md").write_text(markdown(run, image=f"{stem}.svg" if drawn else ""))
    return path
