# ruff: noqa: PLC0415 - a command loads what it needs when it runs, so that short ones start fast
"""`pacekeeper demo`: two simulated engines behind a real gateway, and what it measures, live in the terminal.

Must say that the engines are simulated.  Starts and ends everything itself; at the end nothing is left of it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gateway.cli.entry import let_through
from gateway.cli.exits import CommandFailed, Exit, failures
from gateway.cli.preset_names import preset_help

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.app.demo import Stage
    from gateway.cli.client import AdminClient
    from gateway.cli.demo_view import Advice
    from gateway.cli.grid import Line
    from gateway.ports import BackendReport, StoredRequest

FASTEST: Final = 50.0
"""Above it the figures would show how fast this machine is, not the deployment."""

_REFRESH_S: Final = 0.5
_LINE_EVERY_S: Final = 2.0
_STYLES: Final = {"": "", "bold": "1", "dim": "2", "good": "32", "warn": "33", "bad": "1;31", "busy": "36"}


def demo(
    *,
    preset: Annotated[str, typer.Option(metavar="NAME", help=preset_help())] = "kimi-k2.5-int4",
    speed: Annotated[
        float, typer.Option(metavar="F", help=f"So many times faster than real, {FASTEST:g} at most.")
    ] = 1.0,
    seconds: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="End by itself after so long; else at Ctrl-C.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Where clients connect; 0 takes a free port.")
    ] = 0,
    no_traffic: Annotated[
        bool, typer.Option("--no-traffic", "--quiet-traffic", metavar="", help="Send no requests of its own.")
    ] = False,
) -> None:
    """Show the gateway at work on two simulated engines, until Ctrl-C.

    There is no GPU and no model: the engines' text is invented, their times are computed. What the gateway measures
    is measured.
    """
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    let_through()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an old locale gets question marks, not a traceback
    from gateway.simulator import library

    with failures(as_json=False):
        if not 0.001 <= speed <= FASTEST:
            hint = f"0.001 to {FASTEST:g}; beyond, the figures would show this machine and not the deployment"
            raise CommandFailed(f"--speed {speed:g} cannot be shown", exit_code=Exit.USAGE, code="bad_speed", hint=hint)
        if preset not in library.names():
            hint = f"one of {', '.join(library.names())}"
            raise CommandFailed(f"no preset {preset!r}", exit_code=Exit.USAGE, code="unknown_preset", hint=hint)
        from gateway.app.demo import DemoFailed, DemoStopped, Stage

        try:
            stage = Stage(library.load(preset), speed=speed, port=port)
            try:
                stage.start(stop, tell=_tell)
                _show(stage, stop, seconds=seconds, has_traffic=not no_traffic)
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
    """Say where everything is, and show what is measured until ``stop`` or ``seconds`` are over."""
    from gateway.app.demo import Traffic
    from gateway.cli.client import AdminClient
    from gateway.cli.target import Target, Token

    model = stage.preset.model.name
    if has_traffic:
        traffic = Traffic(stage.addresses.clients, model, stop=stop)
        Thread(target=traffic.run, name="traffic", daemon=True).start()
    client = AdminClient(Target(url=f"http://{stage.addresses.operators}", token=Token(path=stage.token_file)))
    end_s = float("inf") if seconds is None else time.monotonic() + seconds
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        _live(stage, client, stop, end_s=end_s, has_traffic=has_traffic)
    else:
        _lines(stage, client, stop, end_s=end_s, has_traffic=has_traffic)


def _banner(stage: Stage) -> list[Advice]:
    from gateway.cli.demo_view import Advice

    body = f'{{"model": "{stage.preset.model.name}", "stream": true, "max_tokens": 256, "ignore_eos": true, "messages": [{{"role": "user", "content": "hello"}}]}}'
    clients, operators = stage.addresses.clients, stage.addresses.operators
    title = stage.preset.title.removesuffix(" (simulated)")
    command = shlex.quote(str(Path(sys.executable).with_name("pacekeeper")))
    asks = f"--config {shlex.quote(str(stage.config))}"
    return [
        Advice("SIMULATED: no GPU, no model; text invented, times computed", "warn"),
        Advice(title, "dim", rank=6),
        Advice(f"clients     http://{clients}/v1", rank=2),
        Advice(f"operators   http://{operators}   (metrics: /metrics)", rank=9),
        Advice(f"token file  {stage.token_file}", rank=10),
        Advice(f"config      {stage.config}", rank=11),
        Advice("ask it yourself; the last event of the answer holds the figures (`pacekeeper`):", "dim", rank=1),
        Advice(f"curl -N http://{clients}/v1/chat/completions -H 'Content-Type: application/json' -H 'X-Gateway-Metrics: event' -d '{body}'"),
        Advice("every request's figures:", "dim", rank=5),
        Advice(f"{command} requests list {asks}"),
        Advice("gateway at once:", "dim", rank=8),
        Advice(f"{command} status {asks}", rank=7),
        Advice("metrics for Prometheus:", "dim", rank=4),
        Advice(f"curl -s http://{operators}/metrics | grep decode", rank=3),
        Advice("Ctrl-C ends everything.", "bold"),
        Advice("", rank=12),
    ]  # fmt: skip


def _lines(stage: Stage, client: AdminClient, stop: Event, *, end_s: float, has_traffic: bool) -> None:
    """One plain line every two seconds, and one for every request that has been settled since."""
    from gateway.cli.demo_view import LEGEND, fleet_words, request_words

    for advice in _banner(stage):
        _tell(advice.text)
    _tell(LEGEND if has_traffic else f"{LEGEND}\nno traffic of its own: it waits for your request")
    last_id = 0
    while not stop.wait(max(0.0, min(_LINE_EVERY_S, end_s - time.monotonic()))):
        stage.check()
        backends, requests = _asked(client)
        new = [item for item in reversed(requests) if item.id > last_id]
        last_id = max([last_id, *(item.id for item in new)])
        _tell("; ".join(fleet_words(report) for report in backends))
        for item in new:
            _tell(f"  {request_words(item)}")
        if time.monotonic() >= end_s:
            return


def _live(stage: Stage, client: AdminClient, stop: Event, *, end_s: float, has_traffic: bool) -> None:
    """Draw the screen again and again in place; what stood there before is scrolled away, not overwritten."""
    from gateway.cli.demo_view import frame

    banner = _banner(stage)
    before, lines = (0, 0), []
    sys.stdout.write("\n" * shutil.get_terminal_size().lines + "\x1b[?25l")
    try:
        while not stop.is_set() and time.monotonic() < end_s:
            stage.check()
            columns, rows = shutil.get_terminal_size()
            size = (columns, rows)
            backends, requests = _asked(client)
            lines = frame(banner, backends, requests, size=size, has_traffic=has_traffic)
            sys.stdout.write(("" if size == before else "\x1b[H\x1b[J") + _drawn(lines))
            sys.stdout.flush()
            before = size
            stop.wait(min(_REFRESH_S, max(0.0, end_s - time.monotonic())))
    finally:
        sys.stdout.write("\x1b[?25h")


def _drawn(lines: Sequence[Line]) -> str:
    """``lines`` from the upper left corner on, each in place of what stood there."""
    plain = "NO_COLOR" in os.environ
    drawn = []
    for line in lines:
        texts = (
            piece.text if plain or not piece.style else f"\x1b[{_STYLES[piece.style]}m{piece.text}\x1b[0m"
            for piece in line
        )
        drawn.append("\x1b[2K" + "".join(texts) + "\n")
    return "\x1b[H" + "".join(drawn) + "\x1b[J"


def _asked(client: AdminClient) -> tuple[tuple[BackendReport, ...], tuple[StoredRequest, ...]]:
    from gateway.cli.backends import BackendPage
    from gateway.cli.client import decode
    from gateway.cli.demo_view import SHOWN
    from gateway.cli.requests import RequestPage

    backends = decode(client.get("backends"), BackendPage).items
    return backends, decode(client.get("requests", query={"limit": SHOWN}), RequestPage).items
