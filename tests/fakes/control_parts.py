"""Control put together from its real parts, with everything around it in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gateway.control.ingest import Ingest
from gateway.control.keeper import Keeper
from gateway.control.keepsake import Keepsake
from gateway.control.link import WorkerRef
from gateway.control.loop import ControlLoop, Tools
from gateway.control.roster import Roster
from gateway.control.state import ControlState
from gateway.core.admission.shares import ShareBook
from gateway.core.link.messages import ControlMessage, NewSnapshot
from gateway.core.routing.snapshot import Snapshot
from gateway.fleet import Fleet
from gateway.settings import Pool
from gateway.telemetry.bus import Bus
from gateway.telemetry.eventlog import EventLog
from gateway.telemetry.events import EventName
from gateway.telemetry.logs import make_log
from gateway.telemetry.metrics import Metrics
from tests.fakes.fleets import runtime
from tests.fakes.operators import MemoryHistory


class LogLines:
    """The log in memory."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        self.events.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        """The events of that name, in order."""
        return [event for event in self.events if event["event"] == name]


class MemoryOutlet:
    """What workers would get; ``on_send`` is called within each sending."""

    def __init__(self) -> None:
        self.sent: list[tuple[WorkerRef | None, ControlMessage]] = []
        self.on_send: Callable[[ControlMessage], None] = lambda _message: None
        self._news = asyncio.Event()

    def send(self, worker: WorkerRef, message: ControlMessage) -> None:
        self._keep(worker, message)

    def broadcast(self, message: ControlMessage) -> None:
        self._keep(None, message)

    def _keep(self, worker: WorkerRef | None, message: ControlMessage) -> None:
        self.sent.append((worker, message))
        self.on_send(message)
        self._news.set()
        self._news = asyncio.Event()

    @property
    def snapshots(self) -> list[Snapshot]:
        """Every snapshot that was sent, in order."""
        return [message.snapshot for _, message in self.sent if isinstance(message, NewSnapshot)]

    @property
    def states(self) -> dict[str, str]:
        """The state of each backend in the latest snapshot."""
        return {view.name: view.state.value for view in self.snapshots[-1].backends} if self.snapshots else {}

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
        """Returns when ``condition`` holds; looked at whenever something was sent."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._news.wait()


class ControlParts:
    """A control loop with its tools, a memory history and a memory outlet."""

    def __init__(self, folder: Path, *pools: Pool, environ: Mapping[str, str] | None = None, **given: object) -> None:
        self.log = LogLines()
        self.bus = Bus()
        self.metrics = Metrics()
        self.history = MemoryHistory()
        self.outlet = MemoryOutlet()
        self.keepsake = Keepsake(folder)
        self.events = EventLog(make_log(self.log, format="json", level="debug"), self.bus)
        self.keeper = Keeper(self.keepsake, on_problem=self._keepsake_problem)
        self.clock = asyncio.get_running_loop().time
        generation, remembered = self.keepsake.fleet()
        fleet = Fleet(runtime(*pools, **given), generation=generation, now=self.clock(), remembered=remembered)
        shares = ShareBook(workers=1, inherited=False, now=self.clock())
        roster = Roster(models=self.metrics.models, backends=self.metrics.backends, shares=shares)
        tools = Tools(
            ingest=Ingest(history=self.history, metrics=self.metrics, events=self.events),
            events=self.events,
            metrics=self.metrics,
            keeper=self.keeper,
            environ=environ or {},
            clock=self.clock,
        )
        self.loop = ControlLoop(ControlState(fleet, roster), tools, outlet=self.outlet)

    def _keepsake_problem(self, problem: str) -> None:
        self.events.emit(EventName.KEEPSAKE_PROBLEM, problem=problem)

    async def close(self) -> None:
        """End the loop, and have written what it left."""
        await self.loop.close()
        await self.keeper.close(timeout_s=10.0)
