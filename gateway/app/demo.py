"""What the demo runs: two simulated engines and the real gateway, as child processes in a folder of their own.

Shell.  Owner of the children and of the folder: whatever happens, :meth:`Stage.close` ends the first and removes the
second.  Every child leads a process group of its own, so that Ctrl-C at the terminal reaches the demo alone.  When the
demo itself is killed, the folder's guardian does both.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from gateway.app.demo_folder import DemoFolder
from gateway.simulator.presets import Preset

ENGINES: Final = ("sim-a", "sim-b")
READY_WITHIN_S: Final = 30.0
LOAD_S: Final = 3.0
"""Seconds that an engine's load is compressed to."""

_COMMAND: Final = (sys.executable, "-P", "-c", "from gateway.cli.main import main; main()")
_ASK_S: Final = 2.0
_POLL_S: Final = 0.1
_SILENT_S: Final = 1.5
_GATEWAY_ENDS_WITHIN_S: Final = 10.0
_ENGINE_ENDS_WITHIN_S: Final = 4.0
_LAST_LINES: Final = 8


class DemoFailed(Exception):
    """The demo cannot start or go on; the text holds the last lines of the process that is at fault."""


class DemoStopped(Exception):
    """Ctrl-C or SIGTERM came before everything was ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """``host:port`` on the loopback of everything that listens."""

    clients: str
    operators: str
    engines: tuple[str, ...]


class Child:
    """One process with its log."""

    def __init__(self, name: str, arguments: Sequence[str], *, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PACEKEEPER_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                [*_COMMAND, *arguments],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise DemoFailed when it has ended."""
        code = self.process.poll()
        if code is not None:
            raise DemoFailed(f"{self.name} ended with code {code}; its last lines:\n{self.last_lines()}")

    def last_lines(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:])

    def end(self, number: signal.Signals, *, within_s: float) -> None:
        """Ask it to end, wait, and kill what is left of its group."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
        with contextlib.suppress(ProcessLookupError):  # nothing was left: the rule
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class _Wait:
    """Says what is waited for, again and again, so that no start is silent."""

    def __init__(self, what: str, tell: Callable[[str], None]) -> None:
        self._what = what
        self._tell = tell
        self._began_s = self._told_s = time.monotonic()

    def tick(self) -> None:
        """Say it, when nothing was said for a while."""
        now_s = time.monotonic()
        if now_s - self._told_s >= _SILENT_S:
            self._told_s = now_s
            self._tell(f"waiting for {self._what} ({now_s - self._began_s:.0f} s)")


class Stage:
    """Owner of the folder and of the children in it."""

    def __init__(self, preset: Preset, *, speed: float, port: int) -> None:
        self.addresses = free_addresses(port)  # first: what fails here leaves no folder
        self.preset = preset
        self._speed = speed
        self._folder = DemoFolder()
        self.folder = self._folder.path
        self._engines: list[Child] = []
        self._gateway: Child | None = None

    @property
    def config(self) -> Path:
        """The gateway's configuration file."""
        return self.folder / "gateway.yaml"

    @property
    def token_file(self) -> Path:
        """The file with the operators' token."""
        return self.folder / "run" / "admin.token"

    def start(self, stop: Event, *, tell: Callable[[str], None]) -> None:
        """Start everything and wait until it is ready; raises DemoFailed, or DemoStopped when ``stop`` is set."""
        load_speed = max(1.0, self.preset.load.total_s() / LOAD_S)
        tell("starting two SIMULATED engines")
        if load_speed > 1:
            really_s = self.preset.load.total_s()
            long = f"{really_s / 60:.0f} min" if really_s >= 90 else f"{really_s:.0f} s"
            tell(f"loading this model takes {long} in reality; here {LOAD_S:g} s")
        for seed, (name, address) in enumerate(zip(ENGINES, self.addresses.engines, strict=True)):
            self._engines.append(self._engine(name, address, seed=seed, load_speed=load_speed))
        for child, address in zip(self._engines, self.addresses.engines, strict=True):
            self._await(child, address, path="/health", stop=stop, wait=_Wait(f"{child.name} to load", tell))
            tell(f"{child.name} serves on http://{address}")
        self._write_config()
        tell("starting the gateway")
        self._gateway = Child("gateway", ("serve", "--config", str(self.config)), folder=self.folder)
        self._folder.guard(self._gateway.process.pid)
        wait = _Wait("the gateway to see its engines", tell)
        self._await(self._gateway, self.addresses.clients, path="/ready", stop=stop, wait=wait)
        tell("the gateway is ready")

    def _engine(self, name: str, address: str, *, seed: int, load_speed: float) -> Child:
        arguments = [
            *("simulate-engine", "--preset", self.preset.name, "--port", address.rpartition(":")[2]),
            *("--speed", str(self._speed), "--load-speed", str(load_speed), "--seed", str(seed)),
            *("--sigterm", "abort", "--warm", "--card", str(self.folder / f"card-{name}")),
            *("--", "--reasoning-parser", "any", "--enable-per-request-metrics"),
        ]
        child = Child(name, arguments, folder=self.folder)
        self._folder.guard(child.process.pid)
        return child

    def _write_config(self) -> None:
        backends = [
            {"name": name, "url": f"http://{address}"}
            for name, address in zip(ENGINES, self.addresses.engines, strict=True)
        ]
        settings = {
            "clients": {"listen": [self.addresses.clients], "drain_s": 1},
            "operators": {"listen": [self.addresses.operators]},
            "pools": [{"name": "simulated", "backends": backends}],
            "store": {"path": str(self.folder / "history.db")},
            "runtime_dir": str(self.folder / "run"),
            "probes": {"health_s": 1, "scrape_s": 1},
        }
        self.config.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")  # every JSON text is YAML

    def _await(self, child: Child, address: str, *, path: str, stop: Event, wait: _Wait) -> None:
        for _ in range(int(READY_WITHIN_S / _POLL_S)):
            if stop.is_set():  # first: Ctrl-C can reach a child that has no group of its own yet
                raise DemoStopped
            wait.tick()
            child.check()
            if answers(address, path):
                return
            if stop.wait(_POLL_S):
                raise DemoStopped
        raise DemoFailed(f"{child.name} is not ready after {READY_WITHIN_S:g} s; its last lines:\n{child.last_lines()}")

    def check(self) -> None:
        """Raise DemoFailed when the gateway or an engine has ended."""
        for child in (*self._engines, *([self._gateway] if self._gateway else [])):
            child.check()

    def close(self) -> None:
        """End the gateway, then the engines, and remove the folder."""
        if self._gateway is not None:
            self._gateway.end(signal.SIGTERM, within_s=_GATEWAY_ENDS_WITHIN_S)
        for child in self._engines:
            child.end(signal.SIGINT, within_s=_ENGINE_ENDS_WITHIN_S)  # it ignores SIGTERM while it loads, as vLLM does
        self._folder.close()


def free_addresses(port: int) -> Addresses:
    """Addresses on the loopback that are free now; ``port`` is that of the clients, 0 for any.  Raises DemoFailed."""
    held: list[socket.socket] = []
    try:
        try:
            held.append(socket.create_server(("127.0.0.1", port)))
        except OSError as error:
            raise DemoFailed(f"port {port} cannot be used: {error.strerror}; give another with --port") from error
        held += [socket.create_server(("127.0.0.1", 0)) for _ in range(1 + len(ENGINES))]
        clients, operators, *engines = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
        return Addresses(clients=clients, operators=operators, engines=tuple(engines))
    finally:
        for one in held:
            one.close()


def answers(address: str, path: str) -> bool:
    """Whether ``GET path`` gives status 200."""
    connection = http.client.HTTPConnection(address, timeout=_ASK_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Traffic:
    """One small stream at a time, so that there is something to see.  ``run`` is a thread's whole life."""

    def __init__(self, address: str, model: str, *, stop: Event) -> None:
        self._address = address
        self._stop = stop
        self._body = json.dumps({
            "model": model,
            "stream": True,
            "max_tokens": 256,
            "ignore_eos": True,  # an answer of a fixed length thinks for the share of the preset
            "messages": [{"role": "user", "content": "please tell something"}],
        })  # fmt: skip

    def run(self) -> None:
        """Ask until stopped; a refusal is for the view to show."""
        while not self._stop.wait(0.5):
            connection = http.client.HTTPConnection(self._address, timeout=_GATEWAY_ENDS_WITHIN_S)
            try:
                connection.request("POST", "/v1/chat/completions", self._body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                while not self._stop.is_set() and answer.readline():
                    pass
            except (OSError, http.client.HTTPException):
                continue
            finally:
                connection.close()
