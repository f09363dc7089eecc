"""`pacekeeper lora`: which adapter is loaded where, and orders to load or unload one.

Asks the admin API.  An order that not every backend has carried out prints what each said and ends with exit code 1.
"""

from __future__ import annotations

import time
from typing import Final

import typer
from msgspec import Struct

from gateway.cli import words
from gateway.cli.backends import state_style
from gateway.cli.client import AdminClient, decode
from gateway.cli.exits import CommandFailed, Exit
from gateway.cli.grid import Column, Piece
from gateway.cli.screen import Screen
from gateway.cli.target import Options, find
from gateway.core.routing.adapters import DONE, AdapterOnBackend, AdapterOutcome, AdapterReport

ORDER_S: Final = 300.0
"""How long an order may take: a large adapter from a slow share, at one backend after the other."""


class AdapterPage(Struct, frozen=True):
    """The answer of ``/admin/v1/lora``."""

    items: tuple[AdapterReport, ...]


def run_list(options: Options, *, as_json: bool) -> None:
    """Ask for all and print."""
    body = AdminClient(find(options)).get("lora")
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show_list(decode(body, AdapterPage).items, screen, now=time.time())


def run_order(options: Options, name: str, *, pool: str, load: bool, reload: bool, as_json: bool) -> None:
    """Give the order, print what each backend said."""
    client = AdminClient(find(options))
    pool = pool or _pool_of(client, name)
    query = "?reload=true" if reload else ""
    body = client.order("lora", pool, name, "load" if load else "unload", query=query, timeout_s=ORDER_S)
    outcome = decode(body, AdapterOutcome)
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show_outcome(outcome, screen)
    if not outcome.complete:
        raise typer.Exit(Exit.FAULT)


def _pool_of(client: AdminClient, name: str) -> str:
    """The pool with an adapter of that name: there is one at most."""
    reports = decode(client.get("lora"), AdapterPage).items
    found = next((it.pool for it in reports if it.name == name), None)
    if found is None:
        known = ", ".join(it.name for it in reports) or "none"
        raise CommandFailed(
            f"no pool has a LoRA adapter {name}; configured: {known}",
            exit_code=Exit.NOT_FOUND,
            code="not_found",
            hint="pools[].lora in the configuration names adapters and their paths; a reload reads it",
        )
    return found


def show_list(reports: tuple[AdapterReport, ...], screen: Screen, *, now: float) -> None:
    """Print a table with a row for each adapter at each backend, and below it why one is not as it should be."""
    if not reports:
        screen.text("no LoRA adapter is configured: pools[].lora names them")
        return
    columns = [
        Column(title="ADAPTER", least=24),
        Column(title="POOL", least=6, rank=2),
        Column(title="WANTED"),
        Column(title="BACKEND", least=8),
        Column(title="STATE", rank=3),
        Column(title="LOADED"),
        Column(title="TRIED", rank=4),
        Column(title="PATH", least=14, rank=1),
    ]
    screen.grid(columns, [_row(report, at, now=now) for report in reports for at in report.backends])
    troubled = [(report, at) for report in reports for at in report.backends if at.detail]
    if troubled:
        screen.line()
    for report, at in troubled:
        again = f"; asked again in {words.span(at.retry_in_s)}" if at.retry_in_s else ""
        screen.text(Piece(f"{report.name} at {at.backend}", "bold"), f" {at.result}: {at.detail}{again}")


def _row(report: AdapterReport, at: AdapterOnBackend, *, now: float) -> tuple[Piece | str, ...]:
    as_wanted = at.loaded is report.wanted
    return (
        report.name,
        report.pool,
        "yes" if report.wanted else Piece("no", "dim"),
        at.backend,
        Piece(at.state, state_style(at.state)),
        Piece("yes" if at.loaded else "no", ("good" if at.loaded else "dim") if as_wanted else "warn"),
        words.ago(at.tried_wall, now),
        report.path,
    )


def show_outcome(outcome: AdapterOutcome, screen: Screen) -> None:
    """Print what each backend said, and the sentence about it."""
    rows = [
        (it.backend, Piece(it.result.replace("_", " "), "good" if it.result in DONE else "bad"))
        for it in outcome.backends
    ]
    screen.grid([Column(title="BACKEND", least=8), Column(title="RESULT")], rows)
    screen.line()
    screen.text(outcome.summary)
