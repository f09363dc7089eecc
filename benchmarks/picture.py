"""The figures of a run as one picture: an SVG written by hand, so that nobody needs a plotting library for it.

Each relay is a row with its median and what it ranged over; axes are logarithmic, since the slowest relay takes a
hundred times what the quickest takes. Rendering only; sums are made by `summary` and `targets`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.figures import difference
from benchmarks.results import Run
from benchmarks.summary import Costs, latency_medians
from benchmarks.targets import GATEWAY, speedup

_WIDTH, _LEFT, _RIGHT, _ROW, _HEAD, _FOOT = 560, 116, 62, 22, 46, 34
_GAP = 28
_INK, _FAINT, _PLAIN, _OURS = "#1f2933", "#d5dbe1", "#7b8794", "#c2410c"
_FONT = "font-family='Helvetica,Arial,sans-serif' font-size='12'"


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: a name, a median, and the ends of its line."""

    name: str
    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawn part of the picture and its height."""

    svg: str
    height: float


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = _INK, more: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{fill}' {more}>{escape(text)}</text>"


def _line(ends: tuple[float, float, float, float], colour: str, *, width: float = 1, more: str = "") -> str:
    x1, y1, x2, y2 = ends
    return (
        f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}' "
        f"stroke-width='{width}' {more}/>"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Round figures of each decade between the ends; the longer the axis, the fewer."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    span = math.log10(high / low)
    steps = (1, 1.5, 2, 3, 4, 5, 7) if span < 0.9 else (1, 2, 5) if span < 2.2 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def _rows(title: str, unit: str, bars: Sequence[Bar]) -> Panel:
    """Rows of median and range over a logarithmic axis, the least first."""
    bars = sorted(bars, key=lambda bar: bar.middle)
    low = min(bar.low for bar in bars) / 1.25
    high = max(bar.high for bar in bars) * 1.25
    span = math.log10(high / low)
    bottom = _HEAD + _ROW * len(bars)

    def place(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log10(value / low) / span

    drawn = [_text(0, 16, title, more="font-weight='bold' font-size='14'"), _text(0, 33, unit, fill=_PLAIN)]
    for tick in _ticks(low, high):
        drawn.append(_line((place(tick), _HEAD - 4, place(tick), bottom), _FAINT))
        drawn.append(_text(place(tick), bottom + 15, f"{tick:,.10g}", anchor="middle", fill=_PLAIN))
    for number, bar in enumerate(bars):
        y = _HEAD + _ROW * (number + 0.5)
        colour = _OURS if bar.name == GATEWAY else _PLAIN
        drawn.append(_text(_LEFT - 10, y + 4, bar.name, anchor="end", fill=colour if bar.name == GATEWAY else _INK))
        drawn.append(_line((place(bar.low), y, place(bar.high), y), colour, width=3, more="stroke-opacity='0.45'"))
        drawn.append(f"<circle cx='{place(bar.middle):.1f}' cy='{y:.1f}' r='5' fill='{colour}'/>")
        drawn.append(
            _text(_WIDTH, y + 4, f"{bar.middle:,.{0 if bar.middle >= 100 else 1}f}", anchor="end", fill=colour)
        )
    return Panel("".join(drawn), bottom + _FOOT)


def _cost_panel(run: Run, kind: str, title: str) -> Panel | None:
    costs = Costs(run, kind)
    spreads = {relay: costs.spread(relay, "total_us") for relay in costs.by_relay}
    bars = [Bar(name, it.low, it.median, it.high) for name, it in spreads.items() if it is not None and it.low > 0]
    unit = "CPU microseconds, all processes; median and range over the rounds"
    return _rows(title, unit, bars) if bars else None


def _latency_panel(run: Run, figure: str, title: str) -> Panel | None:
    """Added median to added 99th percentile, at the most streams that the gateway was measured with, up to 64."""
    levels = [one.level for one in run.latencies if one.relay == GATEWAY and one.level <= 64]
    if not levels:
        return None
    level, bars = max(levels), []
    direct = latency_medians(run, "direct", level)
    for relay in dict.fromkeys(one.relay for one in run.latencies if one.relay != "direct"):
        found = latency_medians(run, relay, level)
        ends = [difference(found[f"{figure}_{share}_us"], direct[f"{figure}_{share}_us"]) for share in ("p50", "p99")]
        middle, high = (max(1.0, end) if end is not None else None for end in ends)
        if middle is not None and high is not None:
            bars.append(Bar(relay, min(middle, high), middle, max(middle, high)))
    unit = f"microseconds over direct, {level} streams; dot: median, line: to the 99th percentile"
    return _rows(title, unit, bars) if bars else None


def _workers_panel(run: Run) -> Panel | None:
    """Throughput over that of one worker, beside what would be ideal and what is wanted."""
    counts = sorted({one.workers for one in run.workers})
    if len(counts) < 2:
        return None
    most, top, bottom = counts[-1], _HEAD, _HEAD + 190.0

    def at(workers: float, times: float) -> tuple[float, float]:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT - 40) * workers / most, bottom - (bottom - top) * times / most

    drawn = [_text(0, 16, "Throughput with several workers", more="font-weight='bold' font-size='14'")]
    drawn.append(
        _text(0, 33, "times that of one worker; dashed: as many times as workers, and 0.85 of it", fill=_PLAIN)
    )
    drawn += [
        _line((*at(0, 0), *at(most, most * share)), _PLAIN, more="stroke-dasharray='4 4'") for share in (1.0, 0.85)
    ]
    for count in counts:
        drawn.append(_text(at(count, 0)[0], bottom + 15, str(count), anchor="middle", fill=_PLAIN))
        drawn.append(_text(_LEFT - 10, at(0, count)[1] + 4, str(count), anchor="end", fill=_PLAIN))
        drawn.append(_line((*at(0, count), *at(most, count)), _FAINT))
    for kind, name, colour, below in (("requests", "requests", _OURS, 12), ("streams", "chunks", _INK, -2)):
        found = {count: 1.0 if count == 1 else getattr(speedup(run, kind, count), "median", None) for count in counts}
        places = [at(count, times) for count, times in found.items() if times is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        drawn += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{colour}'/>" for x, y in places]
        drawn.append(_text(places[-1][0] + 10, places[-1][1] + below, name, fill=colour))
    return Panel("".join(drawn), bottom + _FOOT)


def picture(run: Run) -> str:
    """The picture, or nothing where nothing was measured that it shows."""
    made = (
        _cost_panel(run, "stream", "Cost of a relayed chunk"),
        _cost_panel(run, "request", "Cost of a short request"),
        _latency_panel(run, "lag", "Latency added to a chunk"),
        _latency_panel(run, "ttft", "Latency added to the first event"),
        _workers_panel(run),
    )
    panels = [panel for panel in made if panel is not None]
    if not panels:
        return ""
    drawn, y = [], float(_GAP)
    for begin in range(0, len(panels), 2):
        pair = panels[begin : begin + 2]
        for column, panel in enumerate(pair):
            drawn.append(f"<g transform='translate({_GAP + column * (_WIDTH + _GAP * 2)},{y:.0f})'>{panel.svg}</g>")
        y += max(panel.height for panel in pair) + _GAP / 2
    width = _GAP * 2 + (_WIDTH if len(panels) == 1 else _WIDTH * 2 + _GAP * 2)
    here = f"{run.machine.cpu_model}, {run.machine.cores} cores, {run.machine.date[:10]}"
    drawn.append(_text(_GAP, y + 4, here, fill=_PLAIN))
    size = f"width='{width}' height='{y + _GAP:.0f}' viewBox='0 0 {width} {y + _GAP:.0f}'"
    back = "<rect width='100%' height='100%' fill='white'/>"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} {_FONT}>{back}{''.join(drawn)}</svg>\n"
