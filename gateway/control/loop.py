"""The control loop: whatever happens passes one inbox, is decided by the state, and is then performed.

One event at a time and in order, also when performing brings about the next one; so there is a single writer and no
lock.  Performing never waits: sending queues, storing queues, files are a thread's, probing wakes a task.  Must not
decide anything: that is :mod:`gateway.control.state`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from gateway import aio
from gateway.control import inbox
from gateway.control.inbox import Action, Event
from gateway.control.ingest import Ingest
from gateway.control.keeper import Keeper
from gateway.control.link import WorkerRef
from gateway.control.probe import ProbeFailed
from gateway.control.state import ControlState
from gateway.control.watch import Watch
from gateway.core.admission.keys import Key
from gateway.core.link.messages import SHARES_S, ControlMessage, NewKeys, NewSnapshot, WorkerMessage
from gateway.core.routing.backend import BackendState
from gateway.core.routing.evidence import Probed
from gateway.core.routing.reading import EngineReading
from gateway.core.routing.snapshot import ModelCard, Snapshot
from gateway.settings import Backend
from gateway.settings.keys import write_keys
from gateway.telemetry.eventlog import EventLog
from gateway.telemetry.events import EventName
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.records import told_exception

FIRST_ROUND_S: Final = 1.0
"""How long control waits for a first look at every backend before it tells workers anything."""


class Outlet(Protocol):
    """The way to the workers; :class:`gateway.control.link.LinkServer` is one."""

    def send(self, worker: WorkerRef, message: ControlMessage) -> None:
        """Send to one worker; returns at once."""
        ...

    def broadcast(self, message: ControlMessage) -> None:
        """Send to every worker; returns at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the loop performs with; chosen once, in ``gateway.app``."""

    ingest: Ingest
    events: EventLog
    metrics: Metrics
    keeper: Keeper
    environ: Mapping[str, str]
    clock: Callable[[], float]
    wall: Callable[[], float] = time.time


class ControlLoop:
    """See the module.  Owns the inbox and the watches; ``outlet`` is set before workers can connect."""

    def __init__(self, state: ControlState, tools: Tools, *, outlet: Outlet | None = None) -> None:
        self.state = state
        self.outlet = outlet
        self._tools = tools
        self._inbox: deque[Event] = deque()
        self._stepping = False
        self._watches: dict[str, tuple[Backend, float, Watch, asyncio.Task[None]]] = {}
        self._opened = asyncio.Event()

    @property
    def tools(self) -> Tools:
        """What the loop performs with, for others that work beside it."""
        return self._tools

    # --- life -----------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Watch every backend; returns when each was looked at once, or the time for that is over."""
        self._perform_all(self.state.begin(now=self._tools.clock()))
        try:
            async with asyncio.timeout(FIRST_ROUND_S):
                await self._opened.wait()
        except TimeoutError:
            self.post(inbox.RoundOver())

    async def run(self) -> None:
        """Hand out shares and look after silent workers, until cancelled."""

        async def tick() -> None:
            self.post(inbox.Ticked())

        await aio.every(SHARES_S, tick)

    async def close(self) -> None:
        """End every watch."""
        tasks = [task for _, _, _, task in self._watches.values()]
        self._watches.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)

    # --- inbox ----------------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Have ``event`` decided and performed: at once, or after what is being performed now."""
        self._inbox.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._inbox:
                self._perform_all(self._step(self._inbox.popleft()))
        finally:
            self._stepping = False
        if self.state.open:
            self._opened.set()

    def _step(self, event: Event) -> list[Action]:
        return self.state.step(event, now=self._tools.clock(), now_wall=self._tools.wall())

    def worker_said(self, worker: WorkerRef, message: WorkerMessage) -> None:
        """The link's messages."""
        self.post(inbox.WorkerSaid(worker, message))

    def worker_left(self, worker: WorkerRef) -> None:
        """The link's ends."""
        self.post(inbox.WorkerLeft(worker))

    # --- what watches see (gateway.control.watch.Sightings) -------------------------------------------------------

    def health_seen(self, backend: str, probed: Probed) -> None:
        """A health probe ended."""
        self.post(inbox.HealthNews(backend, probed))

    def models_seen(self, backend: str, cards: tuple[ModelCard, ...], *, version: str) -> None:
        """The models were read."""
        self.post(inbox.ModelsRead(backend=backend, cards=cards, version=version))

    def numbers_seen(self, backend: str, reading: EngineReading) -> None:
        """The engine's numbers were read."""
        self.post(inbox.NumbersRead(backend, reading))

    def unreadable(self, backend: str, path: str, failure: ProbeFailed) -> None:
        """Models or numbers could not be read."""
        result = failure.result.name.lower()
        self.post(inbox.Unreadable(backend=backend, path=path, result=result, detail=failure.detail))

    def is_serving(self, backend: str) -> bool:
        """Whether the fleet has it serving."""
        return self.state.fleet.state(backend) is BackendState.SERVING

    def probe_period_s(self, backend: str) -> float:
        """How long to wait before the next health probe."""
        return self.state.fleet.probe_period_s(backend)

    def scrape_period_s(self) -> float:
        """How long to wait between two readings of the numbers."""
        return self.state.fleet.runtime.probes.scrape_s

    def watch_failed(self, backend: str, error: Exception) -> None:
        """A defect of ours ended a watch; it begins again."""
        self.failed(f"watch {backend}", error)

    def failed(self, task: str, error: BaseException) -> None:
        """A background task ended with an error: tell where, never what it held."""
        found = told_exception(error)
        self._tools.events.emit(EventName.TASK_FAILED, task=task, error=found["error"], place=found["place"])

    # --- performing -----------------------------------------------------------------------------------------------

    def _perform_all(self, actions: list[Action]) -> None:
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case inbox.Publish(snapshot=snapshot):
                self._publish(snapshot)
            case inbox.PublishKeys(keys=keys):
                self._publish_keys(keys)
            case inbox.SendTo(worker=worker, message=message):
                if self.outlet is not None:
                    self.outlet.send(worker, message)
            case inbox.Broadcast(message=message):
                if self.outlet is not None:
                    self.outlet.broadcast(message)
            case inbox.Watch(backends=backends, timeout_s=timeout_s):
                self._watch(backends, timeout_s)
            case inbox.ProbeNow(backend=backend) | inbox.ReadModels(backend=backend):
                self._hurry(backend, action)
            case inbox.Ingest() | inbox.CountProbe() | inbox.CountState() | inbox.Tell():
                self._record(action)
            case _:
                assert_never(action)

    def _record(self, action: inbox.Ingest | inbox.CountProbe | inbox.CountState | inbox.Tell) -> None:
        match action:
            case inbox.Ingest(records=records):
                self._tools.ingest.settled(records)
            case inbox.CountProbe(backend=backend, path=path, result=result):
                self._tools.metrics.probed(backend, path, result=result)
            case inbox.CountState(backend=backend, state=state):
                self._tools.metrics.entered(backend, state)
            case inbox.Tell(name=name, fields=fields):
                self._tools.events.emit(name, **fields)
            case _:
                assert_never(action)

    def _publish(self, snapshot: Snapshot) -> None:
        self._tools.metrics.models.allow(name for pool in snapshot.pools for name in (*pool.models, *pool.adapters))
        self._tools.metrics.models.allow(card.id for card in snapshot.cards)
        self._tools.keeper.keep_fleet(snapshot.generation, self.state.fleet.remember())
        if self.outlet is not None:
            self.outlet.broadcast(NewSnapshot(snapshot=snapshot))

    def _publish_keys(self, keys: tuple[Key, ...]) -> None:
        self._tools.metrics.keys.allow(key.id for key in keys)
        self._tools.keeper.keep_keys(write_keys(keys))
        if self.outlet is not None:
            self.outlet.broadcast(NewKeys(keys=keys))

    # --- watches --------------------------------------------------------------------------------------------------

    def _watch(self, backends: Mapping[str, Backend], timeout_s: float) -> None:
        self._tools.metrics.backends.allow(backends)
        for name, (backend, limit_s, _, task) in list(self._watches.items()):
            if backends.get(name) != backend or limit_s != timeout_s:
                task.cancel()
                del self._watches[name]
        for name, backend in backends.items():
            if name not in self._watches:
                watch = Watch(
                    backend,
                    sightings=self,
                    environ=self._tools.environ,
                    timeout_s=timeout_s,
                    clock=self._tools.clock,
                )
                self._watches[name] = backend, timeout_s, watch, aio.spawn(watch.run(), name=f"watch {name}")

    def _hurry(self, backend: str, action: inbox.ProbeNow | inbox.ReadModels) -> None:
        found = self._watches.get(backend)
        if found is None:
            return
        _, _, watch, _ = found
        if isinstance(action, inbox.ProbeNow):
            watch.probe_now()
        else:
            watch.read_models_now()
