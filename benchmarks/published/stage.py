"""The processes of a measurement: one simulated engine, and the real gateway in front of it, by their own commands.

Owner of both: whatever happens, they end with the block that started them. What the gateway measured is read as its
operators read it, from its admin API and its metrics.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

from benchmarks import launch
from benchmarks.pacekeeper import BINARY

_READY_WITHIN_S: Final = 60.0
_ASK_S: Final = 10.0
_POLL_S: Final = 0.05
_PAGE: Final = 500
FAST_LOAD: Final = 20_000.0
"""Loads half an hour in a tenth of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """How an engine is started: ``speed`` times faster than real, a token in every ``interval``-th event only."""

    preset: str
    speed: float = 1.0
    load_speed: float = FAST_LOAD
    seed: int = 0
    is_warm: bool = False
    interval: int = 1

    def command(self, folder: Path, port: int) -> list[str]:
        """The command line."""
        return [
            *(str(BINARY), "simulate-engine", "--preset", self.preset, "--port", str(port)),
            *("--speed", f"{self.speed:g}", "--load-speed", f"{self.load_speed:g}", "--seed", str(self.seed)),
            *("--sigterm", "abort", "--card", str(folder / f"card-{port}"), *(["--warm"] if self.is_warm else [])),
            *("--", "--reasoning-parser", "any", "--enable-per-request-metrics"),
            *("--stream-interval", str(self.interval)),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A simulated engine that serves; ``loaded_in_s`` from its first line to its first answer.

    Not from the start of the process: Python's own start is not compressed.
    """

    port: int
    pid: int
    loaded_in_s: float


@contextmanager
def engine(folder: Path, start: EngineStart, *, core: int | None = None) -> Iterator[Engine]:
    """A simulated engine that serves, for the length of the block; raises launch.NotStarted."""
    [port] = launch.free_ports(1)
    log = folder / f"engine-{port}.log"
    with launch.running(start.command(folder, port), log, core=core) as process:
        _await_first_line(process, log)
        began_s = time.monotonic()
        await_status_200(process, port, path="/health", log=log)
        yield Engine(port=port, pid=process.pid, loaded_in_s=time.monotonic() - began_s)


class Gateway:
    """The real gateway, as its clients (``port``) and operators see it."""

    def __init__(self, folder: Path, *, ports: tuple[int, int], engine_port: int) -> None:
        self.port, self.operators_port = ports
        self._folder = folder
        self._engine_port = engine_port

    def command(self) -> list[str]:
        """Write the configuration; the command line."""
        settings = {
            "clients": {"listen": [f"127.0.0.1:{self.port}"], "drain_s": 1},
            "operators": {"listen": [f"127.0.0.1:{self.operators_port}"]},
            "pools": [
                {
                    "name": "simulated",
                    "backends": [{"name": "simulated", "url": f"http://127.0.0.1:{self._engine_port}"}],
                }
            ],
            "store": {"path": str(self._folder / "history.db")},
            "runtime_dir": str(self._folder / "run"),
        }
        path = self._folder / "gateway.yaml"
        path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")  # every JSON text is YAML
        return [str(BINARY), "serve", "--config", str(path)]

    def records(self, count: int, *, within_s: float = _ASK_S) -> list[dict[str, Any]]:
        """The records of the newest settled requests, oldest first, once there are ``count``; raises TimeoutError."""
        token = (self._folder / "run" / "admin.token").read_text(encoding="utf-8").strip()
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            page = self._get(f"/admin/v1/requests?limit={_PAGE}", token)
            items = json.loads(page)["items"]
            if len(items) >= count:
                return [item["record"] for item in reversed(items[:count])]
            time.sleep(_POLL_S)
        raise TimeoutError(f"not {count} settled requests after {within_s:g} s")

    def generated_tokens(self) -> int:
        """The tokens of all settled answers: the gateway's own counter, from its metrics."""
        rows = self._get("/metrics").decode().splitlines()
        found = [row for row in rows if row.startswith("pacekeeper_tokens_total{") and 'kind="prompt' not in row]
        return round(sum(float(row.rpartition(" ")[2]) for row in found))

    def _get(self, path: str, token: str = "") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.operators_port, timeout=_ASK_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise AssertionError(f"{answer.status} for {path}: {body[:300]!r}")
        return body


@contextmanager
def gateway(folder: Path, engine_port: int) -> Iterator[Gateway]:
    """The gateway in front of an engine, serving, for the length of the block; raises launch.NotStarted."""
    folder.mkdir(parents=True, exist_ok=True)
    clients, operators = launch.free_ports(2)
    made = Gateway(folder, ports=(clients, operators), engine_port=engine_port)
    log = folder / "gateway.log"
    with launch.running(made.command(), log, core=None) as process:
        await_status_200(process, clients, path="/ready", log=log)
        yield made


def await_status_200(process: Popen[bytes], port: int, *, path: str, log: Path) -> None:
    """Return when GET ``path`` is answered with 200; raises launch.NotStarted."""
    deadline_s = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < deadline_s and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(_POLL_S)
    tail = log.read_bytes()[-1500:].decode(errors="replace")
    raise launch.NotStarted(f"exit code {process.poll()}; its log ends: {tail}")


def _await_first_line(process: Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _READY_WITHIN_S
    while not log.stat().st_size and process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(_POLL_S / 10)


def say(text: str) -> None:
    """Progress, for the person who waits."""
    print(text, file=sys.stderr, flush=True)
