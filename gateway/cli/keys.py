"""`pacekeeper keys`: the keys of clients, made, listed, shown and ended.

Asks the admin API.  A key that was just made goes to standard output alone on its line, so that a script can keep it;
nothing else ever prints one.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final

import typer
from msgspec import Struct

from gateway.cli import words
from gateway.cli.client import AdminClient, decode
from gateway.cli.grid import Column, Piece
from gateway.cli.screen import Screen
from gateway.cli.target import Options, find
from gateway.core.admission.keys import KeyLimits
from gateway.ports import KeyReport

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""As the gateway wants it."""

_STYLES: Final = {"good": "good", "expired": "dim", "revoked": "dim"}


class KeysPage(Struct, frozen=True):
    """The answer of ``/admin/v1/keys``."""

    items: tuple[KeyReport, ...]


class MadePage(Struct, frozen=True):
    """The answer to making one."""

    key: str
    made: KeyReport


def check_id(key_id: str) -> None:
    """Whether a key may be called so; "" has one made.  Raises BadParameter, which ends with the usage."""
    if key_id and not _ID.fullmatch(key_id):
        message = "1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"
        raise typer.BadParameter(message, param_hint="'--id'")


def run_create(options: Options, wanted: dict[str, Any], *, as_json: bool) -> None:
    """Make one and print it."""
    body = AdminClient(find(options)).post("keys", body=wanted)
    screen = Screen()
    if as_json:
        screen.json(body)
        return
    page = decode(body, MadePage)
    screen.line(page.key)
    if screen.is_terminal:
        screen.text(Piece(f"key {page.made.id}; keep it now, it is not shown again", "dim"))


def run_list(options: Options, *, as_json: bool) -> None:
    """Ask for all and print."""
    body = AdminClient(find(options)).get("keys")
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show_list(decode(body, KeysPage).items, screen, now=time.time())


def run_show(options: Options, key_id: str, *, as_json: bool) -> None:
    """Ask for one and print."""
    _show_answer(AdminClient(find(options)).get("keys", key_id), as_json=as_json)


def run_revoke(options: Options, key_id: str, *, as_json: bool) -> None:
    """End one and print what it was."""
    _show_answer(AdminClient(find(options)).delete("keys", key_id), as_json=as_json)


def _show_answer(body: bytes, *, as_json: bool) -> None:
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show(decode(body, KeyReport), screen, now=time.time())


def show_list(reports: tuple[KeyReport, ...], screen: Screen, *, now: float) -> None:
    """Print a table."""
    columns = [
        Column(title="KEY", least=8),
        Column(title="NAME", least=8),
        Column(title="STATE"),
        Column(title="CREATED", rank=3),
        Column(title="WEIGHT", right=True, rank=2),
        Column(title="LIMITS", least=12, rank=1),
        Column(title="MODELS", least=8, rank=4),
    ]
    rows = [
        (
            it.id,
            it.name,
            Piece(it.state, _STYLES.get(it.state, "")),
            words.ago(it.created_wall, now),
            f"{it.weight:g}",
            limits_told(it.limits) or Piece("none", "dim"),
            ", ".join(it.models),
        )
        for it in reports
    ]
    screen.grid(columns, rows)


def show(report: KeyReport, screen: Screen, *, now: float) -> None:
    """Print everything that is known of one key."""
    screen.line(Piece(report.id, "bold"), " is ", Piece(report.state, _STYLES.get(report.state, "")))
    screen.line()
    screen.pair("name", report.name or words.UNKNOWN)
    screen.pair("for", ", ".join(report.scopes))
    screen.pair("models", ", ".join(report.models))
    screen.pair("limits", limits_told(report.limits) or "none")
    screen.pair("weight", f"{report.weight:g}")
    screen.pair("priority", f"{report.priority_min} to {report.priority_max}, {report.defaults.priority} by default")
    screen.pair("cache salt", "its own" if report.cache_salt else "none")
    for title, wall in (("created", report.created_wall), ("expires", report.expires_wall)):
        screen.pair(title, words.UNKNOWN if wall is None else words.moment(wall))
    if report.revoked_wall is not None:
        screen.pair("revoked", f"{words.moment(report.revoked_wall)} ({words.ago(report.revoked_wall, now)})")


def limits_told(limits: KeyLimits) -> str:
    """The bounds that are set, in one line."""
    parts = [
        f"{words.count(value)} {unit}"
        for value, unit in (
            (limits.concurrency, "at once"),
            (limits.requests_per_minute, "req/min"),
            (limits.tokens_per_minute, "tok/min"),
            (limits.tokens_per_day, "tok/day"),
        )
        if value is not None
    ]
    if limits.queue_share < 1.0:
        parts.append(f"{limits.queue_share:.0%} of a queue")
    return ", ".join(parts)
