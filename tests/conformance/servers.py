"""Servers that a check may hold against each other: simulated ones and real ones, lent and taken back.

A check that only asks gets a shared server; one that strikes gets a server of its own. Simulated ones cost nothing, so
whoever strikes gets a fresh one. A real one costs a quarter of a minute and 2 GB: at most two run at a time, the one
that was not asked for the longest is ended for the next, and whoever strikes gets the running one of its kind.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Protocol

from tests.conformance.targets import KEY, VARIANTS, SimulatedServer
from tests.live.rig import wire
from tests.live.rig.engine import Engine
from tests.live.rig.fleet import Fleet

# What the recorded servers were told beside what tests/live/engine/serve.sh tells every engine; `metrics` is missing,
# because the live tier has such an engine already.
REAL_ARGUMENTS = {
    "base": ("--enable-server-load-tracking",),
    "interval4": ("--stream-interval", "4"),
    "interval100": ("--stream-interval", "100"),
    "noparser": ("--reasoning-parser", "", "--no-enable-auto-tool-choice"),
    "queued": ("--max-num-seqs", "1", "--max-num-queued-reqs", "2"),
    "guarded": ("--api-key", KEY, "--enable-request-id-headers", "--shutdown-timeout", "20"),
}
MOST_AT_ONCE = 2
REAL_PATIENCE_S = 60.0


class Server(Protocol):
    """A server with its processes; ``key`` is empty where none is needed."""

    name: str
    port: int
    key: str

    def await_ready(self) -> None: ...
    def answers(self) -> bool: ...
    def log_bytes(self) -> bytes: ...
    def log_text(self) -> str: ...
    def send(self, number: int) -> None: ...
    def exit_code(self) -> int | None: ...
    def wait(self, *, within_s: float) -> int: ...
    def core_pid(self) -> int: ...
    def left(self) -> list[int]: ...
    def kill(self) -> None: ...


class RealServer:
    """A real vLLM of the live tier's kind."""

    name = "real"

    def __init__(self, engine: Engine, *, key: str = "") -> None:
        self.engine = engine
        self.port = engine.port
        self.key = key

    def await_ready(self) -> None:
        """Wait until it serves, its first slow request behind it."""
        self.engine.wait()
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        with wire.Call(self.port, wire.CHAT, wire.chat(max_tokens=4), headers=headers) as call:
            call.read()

    def answers(self) -> bool:
        """Whether it answers a request."""
        return wire.answers(self.port, "/health")

    def log_bytes(self) -> bytes:
        """What it has printed, to the byte."""
        return self.engine.process.log.read_bytes()

    def log_text(self) -> str:
        """What it has printed, carriage returns made ends of lines."""
        return self.engine.process.log.read_text(encoding="utf-8", errors="replace")

    def send(self, number: int) -> None:
        """Send a signal to the process that serves."""
        os.kill(self.engine.process.pid, number)

    def exit_code(self) -> int | None:
        """The code it ended with; None while it runs."""
        return self.engine.process.exit_code()

    def wait(self, *, within_s: float) -> int:
        """Wait for its end and return the code."""
        return self.engine.process.wait(within_s=within_s)

    def core_pid(self) -> int:
        """The process id of EngineCore."""
        (found,) = [pid for pid in self.left() if _command(pid) == "VLLM::EngineCor"]
        return found

    def left(self) -> list[int]:
        """Whichever of its processes still live."""
        return self.engine.process.members()

    def kill(self) -> None:
        """End everything of it."""
        if self.engine.is_started:
            self.engine.process.sweep()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:  # it ended while we looked
        return ""


class Lender(ABC):
    """Lends servers of one kind, by variant; ``end`` ends whatever was lent."""

    name: str

    @abstractmethod
    def shared(self, variant: str = "base", *, speed: float = 8.0) -> Server:
        """A serving one that is not harmed; ``speed`` is that of a simulated one."""

    @abstractmethod
    def own(self, variant: str = "base", **simulated: Any) -> Server:
        """A serving one that may be harmed; ``simulated`` are settings of a simulated one."""

    @abstractmethod
    def starting(self, variant: str = "base", **simulated: Any) -> Server:
        """A fresh one that has just been started."""

    @abstractmethod
    def adopt(self, server: Server, variant: str) -> None:
        """Take back one that serves in spite of everything: it may be lent again."""

    @abstractmethod
    def end_own(self) -> None:
        """End all that were lent for harm."""


class SimulatedServers(Lender):
    """Owner of the simulated servers of a run."""

    name = "simulator"

    def __init__(self) -> None:
        self._shared: dict[tuple[str, float], SimulatedServer] = {}
        self._own: list[SimulatedServer] = []

    def shared(self, variant: str = "base", *, speed: float = 8.0) -> SimulatedServer:
        if (variant, speed) not in self._shared:
            self._shared[variant, speed] = SimulatedServer(*VARIANTS[variant], speed=speed)
            self._shared[variant, speed].await_ready()
        return self._shared[variant, speed]

    def own(self, variant: str = "base", **simulated: Any) -> SimulatedServer:
        server = self.starting(variant, **simulated)
        server.await_ready()
        return server

    def starting(self, variant: str = "base", **simulated: Any) -> SimulatedServer:
        server = SimulatedServer(*VARIANTS[variant], **({"speed": 1.0} | simulated))
        self._own.append(server)
        return server

    def told(self, *arguments: str, **settings: Any) -> SimulatedServer:
        """A serving one with these arguments beside those of the base, which may be harmed."""
        server = SimulatedServer(*VARIANTS["base"], *arguments, **({"speed": 1.0} | settings))
        self._own.append(server)
        server.await_ready()
        return server

    def adopt(self, server: Server, variant: str) -> None:
        """Do nothing: the next one is as cheap."""

    def end_own(self) -> None:
        while self._own:
            self._own.pop().kill()

    def end(self) -> None:
        """End all of them."""
        self.end_own()
        for server in self._shared.values():
            server.kill()


class RealServers(Lender):
    """Owner of the real engines that the suite starts; the engine with metrics is the live tier's own."""

    name = "real"

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._running: dict[str, RealServer] = {}  # by variant; who was asked for last stands last
        self._own: list[RealServer] = []
        self._started = 0

    def shared(self, variant: str = "base", *, speed: float = 8.0) -> RealServer:
        server = self._running.pop(variant, None)
        if server is None and variant == "metrics":
            self._fleet.start(["engine_a"])
            server = RealServer(self._fleet.engines["engine_a"])
            server.await_ready()
        elif server is None:
            server = self._start(variant)
            server.await_ready()
        self._running[variant] = server
        return server

    def own(self, variant: str = "base", **simulated: Any) -> RealServer:
        server = self.shared(variant)
        del self._running[variant]
        self._own.append(server)
        return server

    def starting(self, variant: str = "base", **simulated: Any) -> RealServer:
        server = self._start(variant)
        self._own.append(server)
        return server

    def adopt(self, server: Server, variant: str) -> None:
        (mine,) = [own for own in self._own if own is server]
        self._own.remove(mine)
        if variant in self._running:
            self._running.pop(variant).engine.end()
        self._running[variant] = mine

    def end_own(self) -> None:
        while self._own:
            self._own.pop().kill()

    def end(self) -> None:
        """End all but the live tier's own."""
        self.end_own()
        for variant in [variant for variant in self._running if variant != "metrics"]:
            self._running.pop(variant).engine.end()

    def _start(self, variant: str) -> RealServer:
        mine = [running for running in self._running if running != "metrics"]
        for idle in mine[: max(0, len(mine) + 1 - MOST_AT_ONCE)]:
            self._running.pop(idle).engine.end()
        self._started += 1
        name = f"conformance-{self._started}-{variant}"
        engine = Engine(name, self._fleet.folder, *REAL_ARGUMENTS[variant])
        engine.start()
        return RealServer(engine, key=KEY if variant == "guarded" else "")
