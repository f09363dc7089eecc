"""A whole request flow in this process, on a loopback port, fed with snapshots by hand: everything but the link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from gateway.core.admission.keys import Key
from gateway.core.link.messages import AskUsage, BackendFailure, DrainAck, NewKeys, NewSnapshot, RequestRecord
from gateway.core.routing.backend import BackendState
from gateway.core.routing.endpoints import ENDPOINTS
from gateway.core.routing.snapshot import BackendView, ModelCard, PoolView, Snapshot, WorkerPolicy
from gateway.proxy.gate import Gate
from gateway.proxy.limits import WireLimits
from gateway.proxy.pipeline import Pipeline
from gateway.proxy.route import Desk
from gateway.proxy.settle import Settler
from gateway.proxy.side import SideShelf
from gateway.proxy.side_door import SideDoor
from gateway.proxy.upstream import Upstreams
from gateway.proxy.usage import UsageDesk
from gateway.proxy.wire import WireServer


class FakeWorker:
    """The stations of one worker; records, failures and acknowledgements are kept for the test to read."""

    def __init__(
        self,
        *,
        idle_s: float = 30.0,
        head_s: float = 30.0,
        connections: int = 1000,
        client_buffer_bytes: int = 64 * 1024,
        with_keys: bool = False,
        lone: bool = True,
        wall: Callable[[], float] = time.time,
        slot: int = 0,
        side_dir: str | None = None,
    ) -> None:
        self.records: list[RequestRecord] = []
        self.failures: list[BackendFailure] = []
        self.acks: list[DrainAck] = []
        clock = asyncio.get_running_loop().time  # so that fake time moves the gateway's clock too
        self.desk = Desk(slot=slot, clock=clock, acknowledge=self.acks.append)
        self.gate = Gate(desk=self.desk, clock=clock, wall=wall, with_keys=with_keys, lone=lone, hurry=self._hurry)
        self.hurries = 0
        self.usage = UsageDesk(self._ask)
        self.questions: list[AskUsage] = []
        self.settler = Settler(slot=slot, clock=clock, offer=self._offer, report_failure=self.failures.append)
        self.upstreams = Upstreams(clock)
        self.sides = SideShelf(slot=slot, clock=clock)
        self.side_door = SideDoor(self.sides, side_dir)
        self.pipeline = Pipeline(
            desk=self.desk,
            gate=self.gate,
            usage=self.usage,
            upstreams=self.upstreams,
            settler=self.settler,
            endpoints=ENDPOINTS,
            version="0.test",
            sides=self.sides,
            side_door=self.side_door,
            clock=clock,
        )
        self.server = WireServer(
            self.pipeline.handle,
            limits=WireLimits(idle_s=idle_s, head_s=head_s, connections=connections),
            buffer_bytes=lambda: client_buffer_bytes,
        )
        self.port = 0
        self._arrived = asyncio.Event()

    def _hurry(self) -> None:
        self.hurries += 1

    def _ask(self, question: AskUsage) -> bool:
        self.questions.append(question)
        return True

    def _offer(self, record: RequestRecord) -> None:
        self.records.append(record)
        self._arrived.set()

    async def until(self, holds: Callable[[], bool], *, timeout_s: float = 40.0) -> None:
        """Wait for what only looking again can tell."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            if holds():
                return
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"not in {timeout_s:g} s")
            await asyncio.sleep(0.001)

    def know(self, *keys: Key) -> None:
        """Replace the clients' keys."""
        self.desk.apply(NewKeys(keys=keys))

    async def record(self, index: int = 0, *, timeout_s: float = 10.0) -> RequestRecord:
        """The record number ``index``, waited for."""
        async with asyncio.timeout(timeout_s):
            while len(self.records) <= index:
                self._arrived.clear()
                await self._arrived.wait()
        return self.records[index]

    def serve(
        self,
        backends: Sequence[BackendView],
        *,
        policy: WorkerPolicy | None = None,
        pools: Sequence[PoolView] = (PoolView(name="main"),),
        cards: Sequence[ModelCard] = (),
    ) -> None:
        """Replace the snapshot."""
        snapshot = Snapshot(
            generation=self.desk.snapshot.generation + 1,
            pools=tuple(pools),
            backends=tuple(backends),
            cards=tuple(cards),
            policy=policy or WorkerPolicy(),
        )
        self.desk.apply(NewSnapshot(snapshot=snapshot))


def backend_view(
    url: str,
    name: str = "a",
    *,
    state: BackendState = BackendState.SERVING,
    models: Sequence[str] = ("tiny",),
    stopping: bool = False,
    api_key_env: str = "",
    tls_ca: str = "",
    pool: str = "main",
) -> BackendView:
    """A backend, of the pool ``main`` unless another is named."""
    return BackendView(
        name=name,
        pool=pool,
        url=url,
        state=state,
        models=tuple(models),
        stopping=stopping,
        api_key_env=api_key_env,
        tls_ca=tls_ca,
    )


@asynccontextmanager
async def running_worker(
    *,
    idle_s: float = 30.0,
    head_s: float = 30.0,
    connections: int = 1000,
    client_buffer_bytes: int = 64 * 1024,
    with_keys: bool = False,
    lone: bool = True,
    wall: Callable[[], float] = time.time,
    slot: int = 0,
    side_dir: str | None = None,
) -> AsyncIterator[FakeWorker]:
    """A worker that listens on a loopback port until the block ends; with ``side_dir`` it has siblings there."""
    worker = FakeWorker(
        idle_s=idle_s,
        head_s=head_s,
        connections=connections,
        client_buffer_bytes=client_buffer_bytes,
        with_keys=with_keys,
        lone=lone,
        wall=wall,
        slot=slot,
        side_dir=side_dir,
    )
    await worker.side_door.open()
    server = await asyncio.get_running_loop().create_server(worker.server, "127.0.0.1", 0)
    worker.port = server.sockets[0].getsockname()[1]
    try:
        yield worker
    finally:
        server.close()
        worker.side_door.close()
        await worker.server.shutdown(1.0)
        worker.upstreams.close()
