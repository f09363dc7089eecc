"""The demo's screen: what to copy, the fleet, the last requests and what the figures mean, in the rows there are.

Pure: reports in, lines out.  Columns keep their width from the first frame to the last; what does not fit is left out
whole, the least needed first.  Long lines to copy stay one line, which the terminal wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.cli import words
from gateway.cli.grid import Column, Line, Piece, cells, lay_out, wrap
from gateway.cli.status import outcome_style
from gateway.ports import BackendReport, StoredRequest

SHOWN: Final = 20
"""Requests that are asked for, and shown at most."""

LEGEND: Final = (
    "DECODE: all tokens a second; REASONING, VISIBLE: while that part flows; EFFECTIVE: visible tokens over the whole "
    "time, what a reader feels; TTFT: to the first token."
)
_WAITS: Final = "no traffic of its own: it waits for your request (the curl line)"
_FEW: Final = 3

_FLEET: Final = (
    Column(title="ENGINE"),
    Column(title="STATE"),
    Column(title="IN FLIGHT", right=True, rank=1),
    Column(title="LAST SECOND", unit="tok/s", right=True),
)
_REQUESTS: Final = (
    Column(title="REQUEST", rank=5),
    Column(title="ENGINE", rank=2),
    Column(title="OUTCOME"),
    Column(title="TTFT", unit="s", right=True),
    Column(title="DECODE", unit="tok/s", right=True),
    Column(title="REASONING", unit="tok/s", right=True, rank=4),
    Column(title="VISIBLE", unit="tok/s", right=True, rank=3),
    Column(title="EFFECTIVE", unit="tok/s", right=True, rank=1),
)
_WIDTHS: Final = (11, 7, 16, 7, 9, 9, 9, 9)


@dataclass(frozen=True, slots=True)
class Advice:
    """A line of the banner.  The one with the highest ``rank`` above 0 is left out first where rows are scarce."""

    text: str
    style: str = ""
    rank: int = 0


def frame(
    banner: Sequence[Advice],
    backends: Sequence[BackendReport],
    requests: Sequence[StoredRequest],
    *,
    size: tuple[int, int],
    has_traffic: bool,
) -> list[Line]:
    """The whole screen for a terminal of ``size`` (columns, rows); one row is left free for the cursor."""
    width, height = size
    fleet = lay_out(_FLEET, [_fleet_row(report) for report in backends], width=width)
    legend = wrap([Piece(LEGEND, "dim")], width)
    shown = list(banner)
    if not has_traffic:
        shown.append(Advice(_WAITS, "bold"))
    lasting = len(fleet) + 1 + 2  # a blank line, and the header of the requests
    while lasting + len(legend) + _FEW + _rows_of(shown, width) > height - 1:
        least = max(shown, key=lambda advice: advice.rank)
        if least.rank == 0:
            legend = []
            break
        shown.remove(least)
    room = max(0, min(SHOWN, height - 1 - lasting - len(legend) - _rows_of(shown, width)))
    rows = [_request_row(item) for item in requests[:room]]
    rows += [tuple(Piece(" " * cells_wide) for cells_wide in _WIDTHS)] * (room - len(rows))
    table = lay_out(_REQUESTS, rows, width=width)
    return [*((Piece(one.text, one.style),) for one in shown), *fleet, (), *table, *legend]


def _rows_of(banner: Sequence[Advice], width: int) -> int:
    return sum(max(1, -(-cells(one.text) // width)) for one in banner)


def fleet_words(report: BackendReport) -> str:
    """One engine in a line of its own, for a pipe."""
    flight = words.count(report.in_flight)
    return f"{report.name} {report.state} {flight} in flight {_rate(report.generation_tps)} tok/s in the last second"


def request_words(item: StoredRequest) -> str:
    """One request in a line of its own, for a pipe."""
    titles = (f"{column.title.lower()} {column.unit}".strip() for column in _REQUESTS)
    return ", ".join(f"{title} {piece.text.strip()}" for title, piece in zip(titles, _request_row(item), strict=True))


def _fleet_row(report: BackendReport) -> tuple[Piece, ...]:
    texts = (f"{report.name:<11}", f"{report.state:<12}", words.count(report.in_flight), _rate(report.generation_tps))
    return tuple(Piece(text) for text in texts)


def _request_row(item: StoredRequest) -> tuple[Piece, ...]:
    record, summary = item.record, item.record.summary
    rates: tuple[float | None, ...] = (None,) * 4
    if summary is not None:
        rates = (summary.decode_tps, summary.reasoning_tps, summary.visible_tps, summary.effective_visible_tps)
    ttft = words.UNKNOWN if record.ttft_s is None else f"{record.ttft_s:.3f}"
    texts = (record.request_id[:11], record.backend or words.UNKNOWN, record.outcome, ttft, *map(_rate, rates))
    styles = ("", "", outcome_style(record.outcome), *[""] * 5)
    padded = [
        f"{text:>{wide}}" if column.right else f"{text:<{wide}}"
        for text, wide, column in zip(texts, _WIDTHS, _REQUESTS, strict=True)
    ]
    return tuple(Piece(text, style) for text, style in zip(padded, styles, strict=True))


def _rate(tps: float | None) -> str:
    """Tokens a second with one decimal, always, so that a column of them can be compared at a glance."""
    return words.UNKNOWN if tps is None else f"{tps:,.1f}"
