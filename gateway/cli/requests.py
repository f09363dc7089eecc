"""`pacekeeper requests list` and `requests show`: what was served, how fast, and how it ended.

Asks the history by way of the admin API.  The beginning of an id is completed from the newest requests, since lists
are cut on narrow terminals.
"""

from __future__ import annotations

import time

from msgspec import Struct

from gateway.cli import words
from gateway.cli.client import AdminClient, decode
from gateway.cli.exits import CommandFailed, Exit
from gateway.cli.grid import Column, Piece
from gateway.cli.request_page import show
from gateway.cli.screen import Screen
from gateway.cli.status import outcome_style
from gateway.cli.target import Options, find
from gateway.core.stream.summary import Exactness, StreamSummary
from gateway.ports import RequestFilter, StoredRequest

_LOOKED_THROUGH = 500
"""How many of the newest requests are looked through for the beginning of an id."""


class RequestPage(Struct, frozen=True):
    """The answer of ``/admin/v1/requests``."""

    items: tuple[StoredRequest, ...]
    next: int | None = None


def run_list(options: Options, wanted: RequestFilter, *, as_json: bool) -> None:
    """Ask for the requests that match ``wanted`` and print them."""
    body = _ask_list(AdminClient(find(options)), wanted)
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show_list(decode(body, RequestPage), screen, now=time.time())


def run_show(options: Options, request_id: str, *, as_json: bool) -> None:
    """Ask for one request, by its id or the beginning of it, and print it."""
    client = AdminClient(find(options))
    try:
        body = client.get("requests", request_id)
    except CommandFailed as error:
        if error.exit_code is not Exit.NOT_FOUND:
            raise
        body = client.get("requests", _whole_id(client, request_id, otherwise=error))
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show(decode(body, StoredRequest).record, screen, now=time.time())


def _ask_list(client: AdminClient, wanted: RequestFilter) -> bytes:
    query = {
        "limit": wanted.limit,
        "model": wanted.model,
        "backend": wanted.backend,
        "outcome": wanted.outcome,
        "slowest": "true" if wanted.slowest else "",
        "before": wanted.before or "",
    }
    return client.get("requests", query=query)


def _whole_id(client: AdminClient, beginning: str, *, otherwise: CommandFailed) -> str:
    """The one recent id that begins so; lists are cut on narrow terminals."""
    recent = decode(_ask_list(client, RequestFilter(limit=_LOOKED_THROUGH)), RequestPage).items
    beginning = beginning.removesuffix("…")
    ids = {item.record.request_id for item in recent if item.record.request_id.startswith(beginning)}
    match sorted(ids):
        case [only] if beginning:
            return only
        case [_, *_] as several if beginning:
            raise CommandFailed(
                f"{len(several)} requests begin with {beginning}: {', '.join(several[:3])}",
                exit_code=Exit.NOT_FOUND,
                code="ambiguous_id",
            ) from otherwise
        case _:
            raise otherwise


def show_list(page: RequestPage, screen: Screen, *, now: float) -> None:
    """Print a table of requests, newest (or slowest) first."""
    if not page.items:
        screen.line("no such requests")
        return
    keys = any(item.record.key_id for item in page.items)
    errors = any(item.record.error_code for item in page.items)
    columns = [
        Column(title="ACCEPTED"),
        Column(title="REQUEST", least=11),
        Column(title="MODEL", least=8),
        Column(title="BACKEND", least=7, rank=1),
        *([Column(title="KEY", least=8, rank=4)] if keys else []),
        Column(title="OUTCOME"),
        *([Column(title="ERROR", least=10, rank=5)] if errors else []),
        Column(title="TTFT", unit="s", right=True),
        Column(title="TOTAL", unit="s", right=True),
        Column(title="TOKENS", right=True, rank=3),
        Column(title="DECODE", unit="tok/s", right=True),
        Column(title="EFFECTIVE", unit="tok/s", right=True, rank=2),
    ]
    screen.grid(columns, [_row(item, now=now, keys=keys, errors=errors) for item in page.items])
    if page.next is not None:
        screen.line()
        screen.line(Piece(f"more: --before {page.next}", "dim"))


def _row(item: StoredRequest, *, now: float, keys: bool, errors: bool) -> tuple[Piece | str, ...]:
    record, summary = item.record, item.record.summary or StreamSummary()
    total = summary.total_exactness is Exactness.ESTIMATED
    split = total or summary.split_exactness is Exactness.ESTIMATED
    return (
        words.ago(record.accepted_wall, now),
        record.request_id,
        record.model or words.UNKNOWN,
        record.backend or words.UNKNOWN,
        *([record.key_id or words.UNKNOWN] if keys else []),
        Piece(record.outcome, outcome_style(record.outcome)),
        *([record.error_code or words.UNKNOWN] if errors else []),
        words.seconds(record.ttft_s),
        words.seconds(record.total_s),
        words.about(words.count(summary.completion_tokens), estimated=total),
        words.about(words.rate(summary.decode_tps), estimated=total),
        words.about(words.rate(summary.effective_visible_tps), estimated=split),
    )
