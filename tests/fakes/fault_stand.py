"""A worker with backends for tests of faults, which must be at rest again at the end, whatever happened.

At rest: no request is in flight, waits, or is counted for a key; no exchange, connection, task, timer or descriptor is
left of what the test did (timers in fake time only: uvloop does not tell of them).  Everything is waited for, nothing
is timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.core.admission.keys import Key
from gateway.core.link.messages import RequestRecord
from gateway.core.routing.snapshot import PoolView, WorkerPolicy
from gateway.core.stream.summary import Outcome
from tests.fakes.backend import Exchange, Script, ScriptedBackend
from tests.fakes.client import RawClient
from tests.fakes.worker import FakeWorker, backend_view, running_worker

PATIENCE_S = 40.0
"""Bound of a wait, not a measurement."""


@dataclass(frozen=True, slots=True)
class Stand:
    """One worker and its backends, ``a`` and so on."""

    worker: FakeWorker
    backends: tuple[ScriptedBackend, ...]

    @property
    def a(self) -> ScriptedBackend:
        return self.backends[0]

    def plays(self, *scripts: Script) -> None:
        """Each backend plays ``scripts``, one a request: whichever is asked, and any other that should not be."""
        for backend in self.backends:
            backend.add(*scripts)

    @property
    def asked(self) -> int:
        """How many requests backends have accepted in all."""
        return sum(len(it.exchanges) for it in self.backends)

    async def accepted(self) -> Exchange:
        """The one request that a backend has accepted."""
        await self.worker.until(lambda: self.asked > 0, timeout_s=PATIENCE_S)
        (exchange,) = [it for backend in self.backends for it in backend.exchanges]
        return exchange

    async def cancelled(self, exchange: Exchange) -> None:
        """Wait until the backend sees that its request is not wanted any more."""
        async with asyncio.timeout(PATIENCE_S):
            await exchange.client_closed.wait()

    async def ended(self, outcome: Outcome, *, asked: int = 1) -> RequestRecord:
        """The one record, with that outcome, of a request that so many backends have accepted."""
        record = await self.worker.record(timeout_s=PATIENCE_S)
        if record.outcome is not outcome or len(self.worker.records) != 1 or self.asked != asked:
            raise AssertionError(f"{self.worker.records} after {self.asked} requests upstream")
        return record

    async def comes_to_rest(self, *, tasks: int, timers: int, descriptors: int) -> None:
        """Wait until nothing is left of what was asked; raises AssertionError when something stays."""
        self.worker.upstreams.close()
        what: dict[str, object] = {}

        def at_rest() -> bool:
            worker = self.worker
            what.update(
                in_flight=dict(worker.desk.in_flight),
                holding=worker.desk.holding,
                flows=worker.gate.flows(),
                of_keys={name: it.holding for name, it in worker.gate.claims().items() if "concurrency" in name},
                exchanges=len(worker.pipeline._open),
                clients=len(worker.server.connections),
                upstream=sum(it.open_connections for it in self.backends),
                tasks=max(0, len(asyncio.all_tasks()) - tasks),
                timers=max(0, armed_timers() - timers),
                descriptors=max(0, open_descriptors() - descriptors),
            )
            return not any(what.values())

        try:
            await self.worker.until(at_rest, timeout_s=PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"not at rest: {what}") from None


@asynccontextmanager
async def stand(
    backends: int = 2,
    *,
    policy: WorkerPolicy | None = None,
    pool: PoolView | None = None,
    keys: Sequence[Key] = (),
    client_buffer_bytes: int = 64 * 1024,
    idle_s: float = 100_000.0,
) -> AsyncIterator[Stand]:
    """A stand; with two backends there is always one that a request could wrongly be sent to as well."""
    async with AsyncExitStack() as opened:
        made = [await opened.enter_async_context(ScriptedBackend()) for _ in range(backends)]
        worker = await opened.enter_async_context(
            running_worker(with_keys=bool(keys), client_buffer_bytes=client_buffer_bytes, idle_s=idle_s)
        )
        if keys:
            worker.know(*keys)
        views = [backend_view(it.url, name) for it, name in zip(made, "abcd", strict=False)]
        worker.serve(views, policy=policy, pools=[pool or PoolView(name="main")])
        await _warm_up(worker)
        tasks, timers, descriptors = len(asyncio.all_tasks()), armed_timers(), open_descriptors()
        it = Stand(worker, tuple(made))
        yield it
        await it.comes_to_rest(tasks=tasks, timers=timers, descriptors=descriptors)


def armed_timers() -> int:
    """Of the running loop, where it tells."""
    return sum(not it.cancelled() for it in getattr(asyncio.get_running_loop(), "_scheduled", ()))


def open_descriptors() -> int:
    """Of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _warm_up(worker: FakeWorker) -> None:
    """Connect once: event loops open descriptors of their own with their first connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
    await worker.until(lambda: bool(worker.server.connections))
    writer.transport.abort()
    del reader
    await worker.until(lambda: not worker.server.connections)


LEAVE = (RawClient.close, RawClient.reset)
"""How a client leaves."""
