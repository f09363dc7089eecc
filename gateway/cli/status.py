"""`pacekeeper status`: the whole gateway in one look, beginning with one sentence.

The sentence is the gateway's own; only its colour is chosen here, by what the pools, workers and store say.
"""

from __future__ import annotations

import time

from gateway.cli import words
from gateway.cli.client import AdminClient, decode
from gateway.cli.grid import Column, Piece
from gateway.cli.screen import Screen
from gateway.cli.target import Options, find
from gateway.core.stream.summary import Outcome
from gateway.ports import PoolReport, StatusReport, WorkerReport


def run(options: Options, *, as_json: bool) -> None:
    """Ask and print."""
    body = AdminClient(find(options)).get("status")
    screen = Screen()
    if as_json:
        screen.json(body)
    else:
        show(decode(body, StatusReport), screen, now=time.time())


def show(report: StatusReport, screen: Screen, *, now: float) -> None:
    """Print ``report`` for people; ``now`` is wall time."""
    screen.text(Piece(report.summary, _mood(report)))
    screen.line()
    screen.pair("version", f"{report.version}, up {words.span(max(0.0, now - report.started_wall))}")
    again = ", being read again" if report.reloading else ""
    screen.pair(
        "config",
        f"{report.config_path}, read {words.ago(report.config_loaded_wall, now)}{again}, generation {report.generation}",
    )
    screen.pair("history", *_history(report))
    if report.keys is not None:
        screen.pair("keys", *_keys(report))
    screen.pair("outcomes", *_outcomes(report.outcomes))
    if any(report.refused.values()):
        screen.pair("refused", *_refused(report.refused))
    if report.quarantined:
        told = f"{words.plural(report.quarantined, 'request')} that backends died of; see pacekeeper quarantine list"
        screen.pair("quarantine", Piece(told, "warn"))
    screen.line()
    _pools(report.pools, screen)
    screen.line()
    _workers(report.workers, screen, now=now)


def _mood(report: StatusReport) -> str:
    """The style of the sentence: bad when a pool is down, a warning when something lacks, is silent or unwritten."""
    if not all(pool.serving for pool in report.pools) and report.stop_left_s is None:
        return "bad"
    pools_whole = all(_is_enough(pool) and not pool.unreported for pool in report.pools)
    whole = pools_whole and all(worker.fresh for worker in report.workers)
    whole = whole and report.stop_left_s is None
    return "bold" if whole and not report.store_problem and not report.keys_problem else "warn"


def _history(report: StatusReport) -> list[Piece | str]:
    rows = words.plural(report.store_rows, "request")
    return [rows] if not report.store_problem else [f"{rows}; ", Piece(report.store_problem, "bad")]


def _keys(report: StatusReport) -> list[Piece | str]:
    good = f"{words.plural(report.keys or 0, 'key')} of clients"
    return [good] if not report.keys_problem else [f"{good}; ", Piece(report.keys_problem, "bad")]


def _outcomes(outcomes: dict[str, int]) -> list[Piece | str]:
    pieces: list[Piece | str] = []
    for name, number in sorted(outcomes.items(), key=lambda item: -item[1]):
        if number:
            pieces += [" · "] if pieces else []
            pieces.append(Piece(f"{name} {words.count(number)}", outcome_style(name)))
    return pieces or ["none yet"]


def _refused(refused: dict[str, int]) -> list[Piece | str]:
    """The reasons, the most frequent first."""
    told = sorted(((name, number) for name, number in refused.items() if number), key=lambda item: -item[1])
    return [" · ".join(f"{name} {words.count(number)}" for name, number in told)]


def _is_enough(pool: PoolReport) -> bool:
    return pool.serving >= max(1, pool.min_available)


def _pools(pools: tuple[PoolReport, ...], screen: Screen) -> None:
    columns = [
        Column(title="POOL", least=8),
        Column(title="SERVING", right=True),
        Column(title="BACKENDS", right=True),
        Column(title="AT LEAST", right=True, rank=1),
        Column(title="WAITING", right=True),
        Column(title="LONGEST", right=True, rank=2),
        Column(title="REFUSED", right=True, rank=3),
        Column(title="", rank=2),
        Column(title="MODELS", least=12),
    ]
    rows = [
        (
            pool.name,
            Piece(words.count(pool.serving), "" if _is_enough(pool) else "bad"),
            words.count(pool.backends),
            words.count(pool.min_available),
            Piece(words.count(pool.waiting), "warn" if pool.waiting else ""),
            words.UNKNOWN if pool.longest_wait_s is None else words.span(pool.longest_wait_s),
            words.count(pool.refused),
            Piece("" if _is_enough(pool) else "down" if not pool.serving else "short", "bad"),
            ", ".join(pool.models) or Piece("as the backends report", "dim"),
        )
        for pool in pools
    ]
    screen.grid(columns, rows)
    for pool in pools:
        if pool.unreported:
            missing = ", ".join(pool.unreported)
            screen.text(Piece(f"  pool {pool.name}: no backend reports {missing}", "bad"))


def _workers(workers: tuple[WorkerReport, ...], screen: Screen, *, now: float) -> None:
    columns = [
        Column(title="WORKER"),
        Column(title="PID", right=True),
        Column(title="UP", right=True),
        Column(title="IN FLIGHT", right=True),
        Column(title="CONNECTIONS", right=True),
        Column(title="GENERATION", right=True, rank=1),
        Column(title="RECORDS LOST", right=True, rank=2),
        Column(title=""),
    ]
    rows = [
        (
            str(worker.slot),
            str(worker.pid),
            words.span(max(0.0, now - worker.started_wall)),
            words.count(worker.in_flight),
            words.count(worker.connections),
            str(worker.generation),
            Piece(words.count(worker.dropped), "warn" if worker.dropped else ""),
            Piece("" if worker.fresh else "silent", "bad"),
        )
        for worker in workers
    ]
    screen.grid(columns, rows)


def outcome_style(outcome: str) -> str:
    """The style of an outcome's name."""
    match outcome:
        case Outcome.OK:
            return "good"
        case Outcome.CLIENT_GONE | Outcome.SHUTDOWN:
            return "dim"
        case Outcome.REJECTED:
            return "warn"
        case _:
            return "bad"
