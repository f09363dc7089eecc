# ruff: noqa: PLC0415 - a command loads what it needs when it runs, so that short ones start fast
"""`pacekeeper demo`: two simulated engines behind a real gateway, and what it measures, live in the terminal.

Must say that the engines are simulated.  Starts and ends everything itself; at the end nothing is left of it.
"""

from __future__ import annotations

import signal
import sys
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gateway.cli.exits import CommandFailed, Exit, failures
from gateway.cli.preset_names import preset_help

if TYPE_CHECKING:
    from gateway.app.demo import Stage
    from gateway.cli.client import AdminClient
    from gateway.ports import BackendReport, StoredRequest

_REFRESH_S: Final = 0.5
_LINE_EVERY_S: Final = 2.0
_SHOWN: Final = 8


def demo(
    *,
    preset: Annotated[str, typer.Option(metavar="NAME", help=preset_help())] = "kimi-k2.5-int4",
    speed: Annotated[
        float, typer.Option(min=0.001, max=1000, metavar="F", help="So many times faster than real.")
    ] = 1.0,
    seconds: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="End by itself after so long; else at Ctrl-C.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Where clients connect; 0 takes a free port.")
    ] = 0,
    quiet_traffic: Annotated[
        bool, typer.Option("--quiet-traffic", metavar="", help="Send no requests of its own.")
    ] = False,
) -> None:
    """Show the gateway at work on two simulated engines, until Ctrl-C.

    There is no GPU and no model: the engines' text is invented, their times are computed. What the gateway measures
    is measured.
    """
    from gateway.simulator import library

    with failures(as_json=False):
        if preset not in library.names():
            hint = f"one of {', '.join(library.names())}"
            raise CommandFailed(f"no preset {preset!r}", exit_code=Exit.USAGE, code="unknown_preset", hint=hint)
        from gateway.app.demo import DemoFailed, DemoStopped, Stage

        stop = Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: stop.set())
        try:
            stage = Stage(library.load(preset), speed=speed, port=port)
            try:
                stage.start(stop, tell=_tell)
                _show(stage, stop, seconds=seconds, has_traffic=not quiet_traffic)
            except DemoStopped:
                pass
            finally:
                stop.set()
                try:
                    _tell("ending the gateway and the engines")
                finally:  # also when nobody reads any more
                    stage.close()
        except DemoFailed as error:
            raise CommandFailed(str(error), exit_code=Exit.USAGE, code="demo_failed") from error
        _tell("ended: no process and no file is left")


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _show(stage: Stage, stop: Event, *, seconds: float | None, has_traffic: bool) -> None:
    """Print where everything is, then the live view until ``stop`` or ``seconds`` are over."""
    from gateway.app.demo import Traffic
    from gateway.cli.client import AdminClient
    from gateway.cli.target import Target, Token

    model = stage.preset.model.name
    _introduce(stage, model)
    if has_traffic:
        traffic = Traffic(stage.addresses.clients, model, stop=stop)
        Thread(target=traffic.run, name="traffic", daemon=True).start()
    client = AdminClient(Target(url=f"http://{stage.addresses.operators}", token=Token(path=stage.token_file)))
    end_s = float("inf") if seconds is None else time.monotonic() + seconds
    view = _live if sys.stdout.isatty() else _lines
    view(stage, client, stop, end_s=end_s)


def _introduce(stage: Stage, model: str) -> None:
    body = f'{{"model": "{model}", "stream": true, "max_tokens": 256, "ignore_eos": true, "messages": [{{"role": "user", "content": "hello"}}]}}'
    clients, operators = stage.addresses.clients, stage.addresses.operators
    _tell(f"""
The engines are SIMULATED: no GPU, no model; text invented, times computed ({stage.preset.title}).

  clients     http://{clients}/v1
  operators   http://{operators}   (metrics: /metrics)
  token file  {stage.token_file}
  config      {stage.config}

curl -N http://{clients}/v1/chat/completions -H 'Content-Type: application/json' -H 'X-Gateway-Metrics: event' -d '{body}'

Ctrl-C ends everything.
""")


def _lines(stage: Stage, client: AdminClient, stop: Event, *, end_s: float) -> None:
    """One plain line every two seconds, and one for every request that has been settled since."""
    last_id = 0
    while not stop.wait(max(0.0, min(_LINE_EVERY_S, end_s - time.monotonic()))):
        stage.check()
        backends, requests = _asked(client)
        new = [item for item in reversed(requests) if item.id > last_id]
        last_id = max([last_id, *(item.id for item in new)])
        _tell("  ".join(" ".join(_fleet_row(report)) for report in backends))
        for item in new:
            titles = ("request", "backend", "outcome", *(f"{name} tok/s" for name in _RATES), "ttft s")
            _tell("  " + ", ".join(f"{title} {text}" for title, text in zip(titles, _request_row(item), strict=True)))
        if time.monotonic() >= end_s:
            return


def _live(stage: Stage, client: AdminClient, stop: Event, *, end_s: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

    with Live(auto_refresh=False) as live:
        while not stop.is_set() and time.monotonic() < end_s:
            stage.check()
            backends, requests = _asked(client)
            fleet = Table("engine (simulated)", "state", "in flight", "tok/s now", title="fleet", box=None)
            for report in backends:
                fleet.add_row(*_fleet_row(report, named=False))
            titles = (name.replace(" ", "\n") for name in _RATES)
            last = Table("request", "backend", "outcome", *titles, "TTFT s", title="last requests, tok/s", box=None)
            for item in requests:
                last.add_row(*_request_row(item))
            live.update(Group(fleet, last), refresh=True)
            stop.wait(_REFRESH_S)


_RATES: Final = ("decode", "reasoning", "visible", "effective visible")


def _asked(client: AdminClient) -> tuple[tuple[BackendReport, ...], tuple[StoredRequest, ...]]:
    from gateway.cli.backends import BackendPage
    from gateway.cli.client import decode
    from gateway.cli.requests import RequestPage

    backends = decode(client.get("backends"), BackendPage).items
    return backends, decode(client.get("requests", query={"limit": _SHOWN}), RequestPage).items


def _fleet_row(report: BackendReport, *, named: bool = True) -> tuple[str, str, str, str]:
    from gateway.cli import words

    flight, now = words.count(report.in_flight), words.rate(report.generation_tps)
    texts = (f"{flight} in flight", f"{now} tok/s now") if named else (flight, now)
    return report.name, str(report.state), *texts


def _request_row(item: StoredRequest) -> tuple[str, ...]:
    from gateway.cli import words

    record, summary = item.record, item.record.summary
    rates: tuple[float | None, ...] = (None,) * len(_RATES)
    if summary is not None:
        rates = (summary.decode_tps, summary.reasoning_tps, summary.visible_tps, summary.effective_visible_tps)
    return (
        record.request_id[:11],
        record.backend or words.UNKNOWN,
        str(record.outcome),
        *(words.rate(rate) for rate in rates),
        words.seconds(record.ttft_s),
    )
