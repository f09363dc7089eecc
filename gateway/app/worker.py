"""Builds a worker: the one place where the request flow's parts meet.

A worker accepts only once it has its first snapshot, the keys and a share of the limit (at most ``FIRST_SNAPSHOT_S``:
the kernel queues meanwhile), and keeps serving on its last ones when control is gone.  Stopping: refuse, finish what is
open, and at the deadline end the rest with an error that clients can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import time
from collections.abc import Callable

from gateway import __version__
from gateway.aio import Nursery, every
from gateway.app.accepting import Accepting
from gateway.app.certificate import ServerCertificate
from gateway.app.spec import InstallSpec
from gateway.core.link.messages import (
    AskUsage,
    ControlMessage,
    DrainAck,
    Heartbeat,
    NewKeys,
    NewSnapshot,
    Shares,
    UsageTold,
)
from gateway.core.routing.endpoints import ENDPOINTS
from gateway.errors import OperatorError
from gateway.proxy.gate import Gate
from gateway.proxy.limits import WireLimits
from gateway.proxy.link import WorkerLink
from gateway.proxy.pipeline import Pipeline
from gateway.proxy.route import Desk
from gateway.proxy.settle import Settler
from gateway.proxy.side import SideShelf
from gateway.proxy.side_door import SideDoor
from gateway.proxy.upstream import Upstreams
from gateway.proxy.usage import UsageDesk
from gateway.proxy.wire import WireServer, has_fast_parser

log = logging.getLogger("gateway.worker")

LINK = "link"

FIRST_SNAPSHOT_S = 5.0
SWEEP_S = 1.0
HURRY_S = 0.02
"""How long a hurried heartbeat waits for more to say: what happens in one turn of the loop is told at once."""

FIRST_REQUEST_S = 1.0
"""How long a stop waits for the first request of a connection that was accepted before it: some round trips."""

LAST_ANSWERS_S = 0.25
"""How long answers that have just been ended may take to be written; whoever has not even sent its request is cut off.

Waited for twice at worst, then ``LAST_RECORDS_S``: together well within what the supervisor grants a hurried stop.
"""

LAST_RECORDS_S = 1.0

BROKEN_S = 5.0
"""What is left to open answers when a worker ends itself by a defect: new clients of its slot wait for the next one."""


class WorkerShell:
    """One worker process.  Owner of its listening sockets, its server and its tasks."""

    def __init__(self, spec: InstallSpec, slot: int, listeners: dict[int, list[socket.socket]]) -> None:
        """``listeners``: every slot's sockets; this worker accepts on its own and on those it is told to adopt.

        Made on the loop that it will run on.
        """
        if not has_fast_parser():
            raise OperatorError("aiohttp runs on its pure-Python parser here: install a build with its C extension")
        self.ready: Callable[[], None] = lambda: None
        self._slot = slot
        self._clock = time.monotonic
        self._started_wall = time.time()
        self._may_begin = asyncio.Event()  # the first snapshot and a share are there, or a stop
        self._stop = asyncio.Event()
        self._broken = False
        self._end_by = math.inf  # of the loop's clock
        self._stop_by: float | None = None  # the same on the clock that control has too
        self._patience: asyncio.Timeout | None = None
        self._nursery = Nursery(self._task_failed)
        self._link = WorkerLink(
            spec.link_path,
            slot,
            on_message=self._from_control,
            heartbeat=self._heartbeat,
            started_wall=self._started_wall,
            on_lost=self._lost_control,
        )
        # Beside others it may hold nothing before it is told what.
        lone, keys = spec.workers == 1, bool(spec.keys_path)
        share = None if lone else 0
        self._desk = Desk(slot=slot, clock=self._clock, acknowledge=self._acknowledge, share=share)
        self._hurried: asyncio.TimerHandle | None = None
        self._gate = Gate(desk=self._desk, clock=self._clock, with_keys=keys, lone=lone, hurry=self._hurry)
        self._usage = UsageDesk(self._ask_usage)
        self._settler = Settler(
            slot=slot, clock=self._clock, offer=self._link.offer, report_failure=self._link.offer_failure
        )
        self._upstreams = Upstreams(self._clock)
        self._sides = SideShelf(slot=slot, clock=self._clock)
        self._side_door = SideDoor(self._sides, spec.runtime_dir if spec.workers > 1 else None)
        self._pipeline = Pipeline(
            desk=self._desk,
            gate=self._gate,
            usage=self._usage,
            upstreams=self._upstreams,
            settler=self._settler,
            endpoints=ENDPOINTS,
            version=__version__,
            sides=self._sides,
            side_door=self._side_door,
            clock=self._clock,
        )
        self._server = WireServer(
            self._pipeline.handle,
            limits=WireLimits(idle_s=spec.client_idle_s, head_s=spec.client_head_s, connections=spec.connections),
            buffer_bytes=lambda: self._desk.snapshot.policy.limits.client_buffer_bytes,
        )
        self._certificate = ServerCertificate(spec.tls_certificate, spec.tls_key) if spec.tls_certificate else None
        self._accepting = Accepting(
            listeners,
            self._server,
            tls=self._certificate.context if self._certificate else None,
            handshake_s=spec.client_head_s,
        )

    async def run(self) -> int:
        """Serve until stopped; 0, or 1 after a defect that only a new process mends."""
        self._nursery.spawn(self._link.run(), name=LINK)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SNAPSHOT_S):
                await self._may_begin.wait()
        self._nursery.spawn(self._sweep_on(), name="sweep")
        if not self._stop.is_set():
            await self._side_door.open()
            await self._accepting.begin(self._slot)
            self.ready()
            await self._stop.wait()
        await self._wind_down()
        return 1 if self._broken else 0

    def adopt(self, slot: int) -> None:
        """Accept on a dead sibling's sockets as well, until :meth:`release`."""
        if self._accepting.may_begin(slot) and not self._stop.is_set():
            self._nursery.spawn(self._accepting.begin(slot), name=f"adopt-{slot}")

    def release(self, slot: int) -> None:
        """Stop accepting on an adopted slot; its owner is back.  The sockets themselves stay open."""
        if slot != self._slot:
            self._accepting.end(slot)

    def stop(self, deadline_s: float) -> None:
        """Take nothing new; ends by itself, at the latest after ``deadline_s``, which a second call can shorten."""
        self._end_by = min(self._end_by, asyncio.get_running_loop().time() + deadline_s)
        if not self._broken:  # else it is this worker's end only
            stop_by = self._clock() + deadline_s
            self._stop_by = stop_by if self._stop_by is None else min(stop_by, self._stop_by)
            self._link.beat_soon()
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._end_by)
        self._desk.stopping = True
        self._stop.set()
        self._may_begin.set()

    async def _wind_down(self) -> None:
        self._accepting.end_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._end_by) as self._patience:
                await self._server.hang_up_idle(patience_s=FIRST_REQUEST_S)
                await self._desk.quiet.wait()
        self._patience = None
        self._pipeline.end_all()
        self._side_door.close()
        await self._server.shutdown(LAST_ANSWERS_S)
        await self._link.close(timeout_s=LAST_RECORDS_S)
        self._upstreams.close()
        await self._nursery.close()

    async def _sweep_on(self) -> None:
        while True:
            try:
                await every(SWEEP_S, self._sweep)
            except Exception as error:  # noqa: BLE001 - task root: without it idle connections would pile up
                _tell_failed("sweep", error)
                await asyncio.sleep(SWEEP_S)

    async def _sweep(self) -> None:
        self._sides.sweep()
        self._upstreams.sweep(idle_s=self._desk.snapshot.policy.timers.upstream_idle_s)
        if self._certificate is not None:
            self._certificate.renew()

    def _from_control(self, message: ControlMessage) -> None:
        share = self._desk.share
        self._desk.apply(message)
        match message:
            case NewSnapshot():
                self._upstreams.forget_certificates()
            case Shares() if share != self._desk.share:
                self._link.beat_soon()
            case Shares(limits=limits) if limits:
                self._hurry()
            case NewKeys():
                pass
            case UsageTold():
                self._usage.told(message)
            case _:
                return
        if self._desk.snapshot.generation and self._desk.share != 0 and self._gate.open:
            self._may_begin.set()

    def _hurry(self) -> None:
        """A heartbeat soon, and only one: control waits for it, or is to hear that a share is too small."""
        if self._hurried is None:
            self._hurried = asyncio.get_running_loop().call_later(HURRY_S, self._hurry_now)

    def _hurry_now(self) -> None:
        self._hurried = None
        self._link.beat_soon()

    def _ask_usage(self, question: AskUsage) -> bool:
        self._link.beat_soon()  # what this worker itself holds of the key's limits goes before the question
        return self._link.ask(question)

    def _lost_control(self) -> None:
        self._desk.lost_control()

    def _acknowledge(self, acknowledgement: DrainAck) -> None:
        self._link.send(acknowledgement)

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            slot=self._slot,
            sent_at=self._clock(),
            generation=self._desk.snapshot.generation,
            in_flight=dict(self._desk.in_flight),
            holding=self._desk.holding,
            connections=len(self._server.connections),
            outcomes=dict(self._settler.outcomes),
            share=self._desk.share,
            dropped=self._link.dropped,
            tap_failures=self._settler.tap_failures,
            claims=self._gate.claims(),
            flows=self._gate.flows(),
            refusals=dict(self._gate.refusals),
            waits=self._gate.waits(),
            stop_by=self._stop_by,
        )

    def _task_failed(self, name: str, error: BaseException) -> None:
        """Without its link a worker would serve on a snapshot that grows old: it ends, and is replaced.

        A slot that could not be adopted is its owner's again in a moment.
        """
        _tell_failed(name, error)
        if name == LINK:
            self._broken = True
            self.stop(BROKEN_S)


def _tell_failed(task: str, error: BaseException) -> None:
    log.error("task.failed", extra={"task": task}, exc_info=error)
