"""One request for people: a sentence, its life as a bar, its instants, counts, rates and flags.

Shows what was measured and in which words the engine put it; makes no figure of its own but lengths between instants.
"""

from __future__ import annotations

from typing import Final

from gateway.cli import words
from gateway.cli.bar import Phase, Stretch, shares, stretches
from gateway.cli.grid import Column, Piece
from gateway.cli.screen import Screen
from gateway.cli.status import outcome_style
from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Exactness, StreamSummary

_BAR_CELLS: Final = 72
_MARGIN_CELLS: Final = 24

_BLOCKS: Final = {
    Phase.SENDING: ("·", ".", "dim"),
    Phase.WAITING: ("░", "-", "warn"),
    Phase.WHOLE: ("▒", "=", "busy"),
    Phase.THINKING: ("▒", "~", "busy"),
    Phase.ANSWERING: ("█", "#", "good"),
    Phase.ENDING: ("·", ".", "dim"),
}
"""Each phase as a block, as plain text, and its style."""


def show(record: RequestRecord, screen: Screen, *, now: float) -> None:
    """Print everything that is known of ``record``; ``now`` is wall time."""
    screen.text(
        Piece(record.outcome, outcome_style(record.outcome)),
        " ",
        Piece(record.request_id, "bold"),
        f"  {record.method} {record.endpoint}",
        f"  {record.model or 'no model'} on {record.backend or 'no backend'}",
    )
    screen.line(f"accepted {words.moment(record.accepted_wall)} ({words.ago(record.accepted_wall, now)})")
    screen.line()
    _bar(record, screen)
    screen.line()
    _instants(record, screen)
    screen.line()
    if record.summary is not None:
        _counts(record.summary, screen)
        _rates(record.summary, screen)
    _circumstances(record, screen)


def _bar(record: RequestRecord, screen: Screen) -> None:
    found = stretches(record)
    if not found:
        return
    width = _BAR_CELLS if screen.width is None else max(10, min(_BAR_CELLS, screen.width - _MARGIN_CELLS))
    cells = shares([stretch.end_s - stretch.start_s for stretch in found], width)
    bar = [_block(stretch, screen, cells=count) for stretch, count in zip(found, cells, strict=True)]
    screen.line("  0 s ", *bar, f" {words.seconds(record.total_s)} s")
    for stretch in found:
        length_s = words.seconds(stretch.end_s - stretch.start_s)
        screen.line("      ", _block(stretch, screen, cells=1), f" {length_s:>6} s  {stretch.phase}")


def _block(stretch: Stretch, screen: Screen, *, cells: int) -> Piece:
    block, plain, style = _BLOCKS[stretch.phase]
    return Piece((block if screen.draws_blocks else plain) * cells, style)


def _instants(record: RequestRecord, screen: Screen) -> None:
    refused_at_once = record.sent_s is None and not record.queue_s
    instants = (
        ("admitted", None if refused_at_once else record.queue_s, "left the gateway's queue"),
        ("sent", record.sent_s, "written to the backend"),
        ("headers", record.headers_s, "the backend's status line"),
        ("first token", record.ttft_s, "TTFT"),
        ("first visible", record.ttfv_s, "TTFV"),
        ("last token", record.last_token_s, ""),
        ("ended", record.total_s, str(record.ending)),
    )
    columns = [Column(title="  INSTANT"), Column(title="AFTER", unit="s", right=True), Column(title="")]
    rows = [(f"  {name}", f"{at_s:.3f}", Piece(note, "dim")) for name, at_s, note in instants if at_s is not None]
    screen.grid(columns, rows)


def _counts(summary: StreamSummary, screen: Screen) -> None:
    cached = f" ({words.count(summary.cached_tokens)} cached)" if summary.cached_tokens else ""
    screen.pair("prompt", f"{words.count(summary.prompt_tokens)} tokens{cached}")
    total = summary.total_exactness is Exactness.ESTIMATED
    text = f"{words.about(words.count(summary.completion_tokens), estimated=total)} tokens"
    if summary.reasoning_tokens is not None and summary.content_tokens is not None:
        share = f" ({words.percent(summary.reasoning_share)})" if summary.reasoning_share is not None else ""
        text += f" = {words.count(summary.reasoning_tokens)} reasoning{share} + {words.count(summary.content_tokens)} content"
        if summary.split_exactness is Exactness.ESTIMATED and not total:
            text += ", the split estimated"
    if total:
        text += ", estimated from the length of the text"
    screen.pair("answer", text)


def _rates(summary: StreamSummary, screen: Screen) -> None:
    total = summary.total_exactness is Exactness.ESTIMATED
    split = total or summary.split_exactness is Exactness.ESTIMATED
    rates = (
        ("decode", summary.decode_tps, total),
        ("reasoning", summary.reasoning_tps, split),
        ("visible", summary.visible_tps, split),
        ("effective visible", summary.effective_visible_tps, split),
    )
    known = [f"{name} {words.about(words.rate(tps), estimated=rough)}" for name, tps, rough in rates if tps is not None]
    screen.pair("tok/s", " · ".join(known) or "not measured")
    if summary.chunks:
        gaps = f"p50 {words.millis(summary.gap_p50_s)}, p99 {words.millis(summary.gap_p99_s)}"
        screen.pair(
            "chunks", f"{words.count(summary.chunks)}; gaps in ms: {gaps}, max {words.millis(summary.gap_max_s)}"
        )
    if (engine := summary.engine) is not None:
        itl = words.UNKNOWN if engine.mean_itl_ms is None else f"{engine.mean_itl_ms:.2f}"
        queue = words.UNKNOWN if engine.queue_time_ms is None else f"{engine.queue_time_ms:.1f}"
        screen.pair("engine says", f"inter-token latency {itl} ms, queue {queue} ms")
    if summary.finish_reasons:
        screen.pair("finished by", ", ".join(summary.finish_reasons))
    if summary.flags:
        screen.pair("flags", ", ".join(summary.flags))


def _circumstances(record: RequestRecord, screen: Screen) -> None:
    kind = "stream" if record.stream else "whole answer"
    if record.key_id:
        screen.pair("key", record.key_id)
    screen.pair("response", f"status {record.status}, {kind}, {words.size(record.response_bytes)}")
    screen.pair("request", f"{words.size(record.request_bytes)}, received in {words.millis(record.upload_s)} ms")
    screen.pair("backend", f"{words.plural(record.attempts, 'attempt')}{', alone on it' if record.alone else ''}")
    own, held, blocked = (words.millis(value) for value in (record.gateway_s, record.hold_max_s, record.blocked_s))
    screen.pair("gateway", f"own share {own} ms, held at most {held} ms, client blocked {blocked} ms")
    if record.error_code:
        reason = f": {record.error_reason}" if record.error_reason else ""
        screen.pair("error", Piece(f"{record.error_code}{reason}", "bad"))
    if record.summary is not None and (error := record.summary.error) is not None:
        screen.pair("in the answer", Piece(" ".join(filter(None, (error.type, error.code))), "bad"))
