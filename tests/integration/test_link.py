"""Both ends of the link over a real Unix socket on uvloop: what the in-memory pair cannot show."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from gateway import aio
from gateway.control.link import LinkServer
from gateway.core.link.messages import (
    DrainAck,
    Heartbeat,
    Hello,
    NewSnapshot,
    Settled,
)
from gateway.core.routing.snapshot import ModelCard, Snapshot
from gateway.proxy.link import MAX_QUEUED_RECORDS, WorkerLink
from tests.fakes.link_ends import PULSE, bare_heartbeat, bare_record

pytestmark = pytest.mark.asyncio

BUSY_S = 0.5

LARGE = NewSnapshot(
    snapshot=Snapshot(generation=1, pools=(), backends=(), cards=(ModelCard(id="m", raw=b" " * (4 * 1024 * 1024)),))
)


class Ends:
    """Control's inbox and the worker's, with the link between them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at_control: asyncio.Queue = asyncio.Queue()
        self.gone: asyncio.Queue = asyncio.Queue()
        self.at_worker: asyncio.Queue = asyncio.Queue()
        self.server = self.new_server()
        self.worker = WorkerLink(
            str(path),
            0,
            on_message=self.at_worker.put_nowait,
            heartbeat=lambda: bare_heartbeat(dropped=self.worker.dropped),
            started_wall=1.0,
        )

    def new_server(self) -> LinkServer:
        return LinkServer(
            str(self.path), on_message=lambda *said: self.at_control.put_nowait(said), on_gone=self.gone.put_nowait
        )

    async def heard(self, kind: type):
        """The next message of that kind at control, and who sent it."""
        while True:
            ref, message = await self.at_control.get()
            if isinstance(message, kind):
                return ref, message


@asynccontextmanager
async def linked(tmp_path: Path) -> AsyncIterator[Ends]:
    ends = Ends(tmp_path / "link.sock")
    await ends.server.start()
    task = aio.spawn(ends.worker.run(), name="link")
    try:
        async with asyncio.timeout(30):
            yield ends
    finally:
        task.cancel()
        await asyncio.wait({task})
        await ends.server.close()


async def test_messages_of_every_size_go_both_ways(tmp_path: Path) -> None:
    async with linked(tmp_path) as ends:
        ref, _ = await ends.heard(Hello)
        ends.server.send(ref, LARGE)
        ends.server.broadcast(PULSE)
        assert await ends.at_worker.get() == LARGE
        assert await ends.at_worker.get() == PULSE
        for number in range(1000):
            ends.worker.offer(bare_record(number))
        ends.worker.send(DrainAck(slot=0, backend="a", generation=1, in_flight=0))
        await ends.heard(DrainAck)
        received = []
        while len(received) < 1000:
            received += (await ends.heard(Settled))[1].records
        assert received == [bare_record(number) for number in range(1000)]


async def test_a_new_control_takes_over_and_gets_what_was_settled_meanwhile(tmp_path: Path) -> None:
    async with linked(tmp_path) as ends:
        await ends.heard(Hello)
        await ends.server.close()
        await ends.gone.get()
        ends.worker.offer(bare_record(7))
        ends.server = ends.new_server()
        await ends.server.start()
        await ends.heard(Hello)
        assert (await ends.heard(Settled))[1].records == [bare_record(7)]


async def test_a_worker_that_stops_reading_is_cut_off_and_comes_back(tmp_path: Path) -> None:
    async with linked(tmp_path) as ends:
        ref, _ = await ends.heard(Hello)
        while not ends.server._sessions[ref].transport.is_closing():
            ends.server.send(ref, LARGE)  # nothing is read while this loop turns
        assert await ends.gone.get() == ref
        again, _ = await ends.heard(Hello)
        assert again != ref


async def test_close_delivers_everything_that_was_offered(tmp_path: Path) -> None:
    async with linked(tmp_path) as ends:
        await ends.heard(Hello)
        for number in range(MAX_QUEUED_RECORDS):
            ends.worker.offer(bare_record(number))
        await ends.worker.close(timeout_s=20.0)
        received = 0
        while received < MAX_QUEUED_RECORDS:
            received += len((await ends.heard(Settled))[1].records)
        assert (await ends.heard(Heartbeat))[1].dropped == 0
        await ends.gone.get()


async def test_close_delivers_what_was_offered_to_a_control_that_is_busy_and_then_speaks_first(tmp_path: Path) -> None:
    """What it says to a worker that has closed breaks the connection, and what it has not read is lost with it."""
    async with linked(tmp_path) as ends:
        ref, _ = await ends.heard(Hello)
        left, closed = threading.Event(), threading.Event()
        thread = threading.Thread(target=_offer_and_close, args=(str(ends.path), left, closed))
        thread.start()
        other, _ = await ends.heard(Hello)
        left.set()
        closed.wait(BUSY_S)  # the loop stands still
        ends.server.send(other, PULSE)
        assert await ends.gone.get() == other != ref
        heard = [ends.at_control.get_nowait() for _ in range(ends.at_control.qsize())]
        records = [message.records for sender, message in heard if sender == other and isinstance(message, Settled)]
        assert records == [[bare_record(7)]]
        await asyncio.to_thread(thread.join)


def _offer_and_close(path: str, left: threading.Event, closed: threading.Event) -> None:
    """Another worker, on a loop of its own."""

    async def live() -> None:
        worker = WorkerLink(path, 1, on_message=lambda _: None, heartbeat=bare_heartbeat, started_wall=2.0)
        running = aio.spawn(worker.run(), name="other link")
        await asyncio.to_thread(left.wait)
        worker.offer(bare_record(7))
        await worker.close(timeout_s=20.0)
        await running

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live())
    closed.set()
