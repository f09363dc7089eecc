"""`pacekeeper quarantine`: requests that are refused since backends died of them, listed and let in again.

Asks the admin API.  They are known by the fingerprint of their body; nobody can see what was asked.
"""

from __future__ import annotations

import time

from msgspec import Struct

from gateway.cli import words
from gateway.cli.client import AdminClient, decode
from gateway.cli.grid import Column, Piece
from gateway.cli.screen import Screen
from gateway.cli.target import Options, find
from gateway.ports import QuarantineReport


class QuarantinePage(Struct, frozen=True):
    """The answer of ``/admin/v1/quarantine``."""

    items: tuple[QuarantineReport, ...]


class ReleasedPage(Struct, frozen=True):
    """The answer to letting one in."""

    fingerprint: str


def run_list(options: Options, *, as_json: bool) -> None:
    """Ask for all and print."""
    body = AdminClient(find(options)).get("quarantine")
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show_list(decode(body, QuarantinePage).items, screen, now=time.time())


def run_release(options: Options, fingerprint: str, *, as_json: bool) -> None:
    """Let one in and say so."""
    body = AdminClient(find(options)).delete("quarantine", fingerprint)
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        screen.line(Piece(decode(body, ReleasedPage).fingerprint, "bold"), " is served again")


def show_list(reports: tuple[QuarantineReport, ...], screen: Screen, *, now: float) -> None:
    """Print a table, or that there is nothing to print."""
    if not reports:
        screen.line(Piece("no request is quarantined", "dim"))
        return
    columns = [
        Column(title="FINGERPRINT"),
        Column(title="SINCE", right=True),
        Column(title="LEFT", right=True),
        Column(title="DEATHS", right=True, rank=1),
        Column(title="BACKENDS", least=8),
    ]
    rows = [
        (
            it.fingerprint,
            words.ago(it.first_wall, now),
            words.span(max(0.0, it.until_wall - now)),
            words.count(len(it.backends)),
            ", ".join(dict.fromkeys(it.backends)),
        )
        for it in reports
    ]
    screen.grid(columns, rows)
