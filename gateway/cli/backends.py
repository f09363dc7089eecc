"""`pacekeeper backends list` and `backends show`: every vLLM server, its state and why.

Asks the admin API once and lays the reports out; works nothing out of them by itself.
"""

from __future__ import annotations

import time
from typing import assert_never

from msgspec import Struct

from gateway.cli import words
from gateway.cli.client import AdminClient, decode
from gateway.cli.grid import Column, Piece
from gateway.cli.screen import Screen
from gateway.cli.target import Options, find
from gateway.core.routing.backend import BackendState
from gateway.ports import BackendReport


class BackendPage(Struct, frozen=True):
    """The answer of ``/admin/v1/backends``."""

    items: tuple[BackendReport, ...]


def run_list(options: Options, *, as_json: bool) -> None:
    """Ask for all and print."""
    body = AdminClient(find(options)).get("backends")
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show_list(decode(body, BackendPage).items, screen, now=time.time())


def run_show(options: Options, name: str, *, as_json: bool) -> None:
    """Ask for one and print."""
    body = AdminClient(find(options)).get("backends", name)
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show(decode(body, BackendReport), screen, now=time.time())


def show_list(reports: tuple[BackendReport, ...], screen: Screen, *, now: float) -> None:
    """Print a table, and below it why each backend that is not serving is not."""
    columns = [
        Column(title="BACKEND", least=8),
        Column(title="POOL", least=6, rank=2),
        Column(title="STATE"),
        Column(title="SINCE"),
        Column(title="IN FLIGHT", right=True),
        Column(title="RUNNING", right=True, rank=3),
        Column(title="WAITING", right=True, rank=3),
        Column(title="RATE", unit="tok/s", right=True),
        Column(title="URL", least=24),
        Column(title="MODELS", least=8, rank=4),
    ]
    screen.grid(columns, [_row(report, now=now) for report in reports])
    troubled = [report for report in reports if report.state is not BackendState.SERVING and report.reason]
    if troubled:
        screen.line()
    for report in troubled:
        screen.text(Piece(report.name, "bold"), f" {report.state}: {_reason(report)}")


def _row(report: BackendReport, *, now: float) -> tuple[Piece | str, ...]:
    return (
        report.name,
        report.pool,
        Piece(report.state, state_style(report.state)),
        words.ago(report.since_wall, now),
        words.count(report.in_flight),
        words.count(report.engine_running),
        words.count(report.engine_waiting),
        words.rate(report.generation_tps),
        report.url,
        ", ".join(report.models) or words.UNKNOWN,
    )


def show(report: BackendReport, screen: Screen, *, now: float) -> None:
    """Print everything that is known of one backend."""
    screen.line(
        Piece(report.name, "bold"),
        " is ",
        Piece(report.state, state_style(report.state)),
        f" since {_since(report, now)}",
    )
    if report.reason:
        screen.text(_reason(report))
    screen.line()
    screen.pair("pool", report.pool)
    screen.pair("url", report.url)
    screen.pair("driver", report.driver)
    screen.pair("models", ", ".join(report.models) or "not known yet")
    screen.pair("engine", report.version or "not known")
    if report.profile:
        screen.pair("profile", report.profile)
    screen.pair("last probe", words.ago(report.last_probe_wall, now))
    screen.line()
    screen.pair("in flight", f"{words.count(report.in_flight)} from this gateway")
    if report.engine_running is not None:
        waiting = words.count(report.engine_waiting)
        screen.pair("in engine", f"{words.count(report.engine_running)} running, {waiting} waiting")
    if report.generation_tps is not None:
        screen.pair("rate", f"{words.rate(report.generation_tps)} tok/s, all requests together")
    if report.curve:
        screen.pair("pace", _pace(report))
    if report.generation_tokens is not None:
        screen.pair("generated", f"{words.count(report.generation_tokens)} tokens since the engine's start")
    screen.pair("requests", f"{words.count(report.requests_total)} settled")


def _pace(report: BackendReport) -> str:
    """Tokens per second of one stream, among so many."""
    points = (f"{words.rate(it.tps)} tok/s at {it.streams:.3g}" for it in report.curve)
    return f"{', '.join(points)} stream{'s' * (report.curve[-1].streams > 1)}, each"


def _reason(report: BackendReport) -> str:
    """Why it is in its state, without the state itself."""
    return report.reason.removeprefix(f"{report.state}: ")


def _since(report: BackendReport, now: float) -> str:
    return f"{words.moment(report.since_wall)} ({words.ago(report.since_wall, now)})"


def state_style(state: BackendState) -> str:
    """The style of a state's name."""
    match state:
        case BackendState.SERVING:
            return "good"
        case BackendState.STARTING | BackendState.LOADING | BackendState.WARMING | BackendState.MEASURING:
            return "busy"
        case BackendState.UNKNOWN | BackendState.DRAINING | BackendState.STOPPING | BackendState.CLEANING:
            return "warn"
        case BackendState.EJECTED | BackendState.FAILED | BackendState.WEDGED:
            return "bad"
        case BackendState.STOPPED:
            return "dim"
        case _:
            assert_never(state)
