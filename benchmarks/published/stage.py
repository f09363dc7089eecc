"""The processes of a measurement: one simulated engine, and the real gateway in front of it, by their own commands.

Owner of both: whatever happens, they end with the block that started them. What the gateway measured is read as its
operators read it, from its admin API and its metrics.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from types import MappingProxyType
from typing import Any, Final

from benchmarks import launch
from benchmarks.pacekeeper import BINARY
from gateway.core.routing.reading import parse_metrics

_READY_WITHIN_S: Final = 60.0
_ASK_S: Final = 10.0
_POLL_S: Final = 0.05
_PAGE: Final = 500
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
FAST_LOAD: Final = 20_000.0
"""Loads half an hour in a tenth of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """How an engine is started: ``speed`` times faster than real, a token in every ``interval``-th event only.

    ``drift``: what is wrong with its box before it is asked for anything, as its control port takes it.
    """

    preset: str
    speed: float = 1.0
    load_speed: float = FAST_LOAD
    seed: int = 0
    is_warm: bool = False
    interval: int = 1
    drift: Mapping[str, object] | None = None

    def command(self, folder: Path, port: int, control_port: int) -> list[str]:
        """The command line."""
        return [
            *(str(BINARY), "simulate-engine", "--preset", self.preset, "--port", str(port)),
            *("--speed", f"{self.speed:g}", "--load-speed", f"{self.load_speed:g}", "--seed", str(self.seed)),
            *("--control-port", str(control_port)),
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
    control_port: int

    def inject(self, drift: Mapping[str, object]) -> None:
        """Put an injection in force, or with magnitude 0 out of it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.control_port, timeout=_ASK_S)
        try:
            connection.request("POST", "/drift", json.dumps(drift))
            answer = connection.getresponse()
            if answer.status != 200:
                raise AssertionError(f"the engine does not take {drift}: {answer.read()[:300]!r}")
        finally:
            connection.close()

    def generated(self) -> float:
        """Tokens that it has generated since it started, by its own counter."""
        page = fetched(self.port, "/metrics")
        return parse_metrics(page, read_at=0.0).generation_tokens or 0.0


@contextmanager
def engine(folder: Path, start: EngineStart, *, core: int | None = None) -> Iterator[Engine]:
    """A simulated engine that serves, for the length of the block; raises launch.NotStarted."""
    port, control_port = launch.free_ports(2)
    log = folder / f"engine-{port}.log"
    with launch.running(start.command(folder, port, control_port), log, core=core) as process:
        _await_first_line(process, log)
        began_s = time.monotonic()
        await_status_200(process, port, path="/health", log=log)
        loaded_in_s = time.monotonic() - began_s
        made = Engine(port=port, pid=process.pid, loaded_in_s=loaded_in_s, control_port=control_port)
        if start.drift is not None:
            made.inject(start.drift)
        yield made


class Gateway:
    """The real gateway, as its clients (``port``) and operators see it.

    ``engines`` are ports by the names of the backends; ``pool`` and ``more`` are further settings.
    """

    def __init__(
        self,
        folder: Path,
        *,
        ports: tuple[int, int],
        engines: Mapping[str, int],
        pool: Mapping[str, object] = _NOTHING,
        more: Mapping[str, object] = _NOTHING,
    ) -> None:
        self.port, self.operators_port = ports
        self._folder = folder
        self._engines = engines
        self._pool = pool
        self._more = more

    def command(self) -> list[str]:
        """Write the configuration; the command line."""
        backends = [{"name": name, "url": f"http://127.0.0.1:{port}"} for name, port in self._engines.items()]
        settings = {
            "clients": {"listen": [f"127.0.0.1:{self.port}"], "drain_s": 1},
            "operators": {"listen": [f"127.0.0.1:{self.operators_port}"]},
            "pools": [{"name": "simulated", "backends": backends, **self._pool}],
            "store": {"path": str(self._folder / "history.db")},
            "runtime_dir": str(self._folder / "run"),
            **self._more,
        }
        path = self._folder / "gateway.yaml"
        path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")  # every JSON text is YAML
        return [str(BINARY), "serve", "--config", str(path)]

    def records(self, count: int, *, within_s: float = _ASK_S) -> list[dict[str, Any]]:
        """The records of the newest settled requests, oldest first, once there are ``count``; raises TimeoutError."""
        token = self._token()
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            page = self._get(f"/admin/v1/requests?limit={_PAGE}", token)
            items = json.loads(page)["items"]
            if len(items) >= count:
                return [item["record"] for item in reversed(items[:count])]
            time.sleep(_POLL_S)
        raise TimeoutError(f"not {count} settled requests after {within_s:g} s")

    def ended(self, from_wall: float, until_wall: float, *, within_s: float = _ASK_S) -> list[dict[str, Any]]:
        """The records of the requests that ended in that time, while others go on ending after it.

        Raises TimeoutError when none does: then nobody knows whether all records have come.
        """
        deadline_s = time.monotonic() + within_s
        while _ended_wall(self.records(1)[0]) <= until_wall:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no request has ended {within_s:g} s after the window")
            time.sleep(_POLL_S)
        found, before = list[dict[str, Any]](), 0
        while True:
            page = json.loads(self._get(f"/admin/v1/requests?limit={_PAGE}&before={before}", self._token()))
            records = [item["record"] for item in page["items"]]
            found += [record for record in records if from_wall < _ended_wall(record) <= until_wall]
            before = page["next"]
            if before is None or all(_ended_wall(record) <= from_wall for record in records):
                return found

    def fetched(self, path: str) -> bytes:
        """What operators get for GET ``path``; raises AssertionError for an error."""
        return self._get(path, self._token())

    def _token(self) -> str:
        return (self._folder / "run" / "admin.token").read_text(encoding="utf-8").strip()

    def _get(self, path: str, token: str) -> bytes:
        return fetched(self.operators_port, path, headers={"Authorization": f"Bearer {token}"})


def _ended_wall(record: dict[str, Any]) -> float:
    return float(record["accepted_wall"] + record["total_s"])


@contextmanager
def gateway(folder: Path, engine_port: int) -> Iterator[Gateway]:
    """The gateway in front of an engine, serving, for the length of the block; raises launch.NotStarted."""
    made = Gateway(folder, ports=free_pair(), engines={"simulated": engine_port})
    with serving(made, folder):
        yield made


def free_pair() -> tuple[int, int]:
    """Two ports that nobody listens on at the moment."""
    clients, operators = launch.free_ports(2)
    return clients, operators


@contextmanager
def serving(made: Gateway, folder: Path) -> Iterator[Popen[bytes]]:
    """A gateway that serves, for the length of the block; raises launch.NotStarted."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "gateway.log"
    with launch.running(made.command(), log, core=None) as process:
        await_status_200(process, made.port, path="/ready", log=log)
        yield process


def fetched(port: int, path: str, *, headers: Mapping[str, str] = _NO_HEADERS) -> bytes:
    """What a server on this machine answers with 200; raises AssertionError for any other status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ASK_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise AssertionError(f"{answer.status} for {path}: {body[:300]!r}")
    return body


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
