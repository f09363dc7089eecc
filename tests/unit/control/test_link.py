"""Control's end: sessions come and go with their workers; garbage, strangers and the slow are cut off alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway import aio
from gateway.control.link import HELLO_S, MAX_UNSENT_BYTES, LinkServer, WorkerRef
from gateway.core.link.framing import frame
from gateway.core.link.messages import ControlMessage, DrainAck, NewSnapshot, Refused, WorkerMessage
from gateway.core.routing.snapshot import ModelCard, Snapshot
from tests.fakes.link_ends import PULSE, FarEnd, hello, worker_end
from tests.fakes.memory_streams import memory_pair, transport_of

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

ACK = DrainAck(slot=0, backend="a", generation=1, in_flight=0)


class Hall:
    """A link server with its inbox, and the workers that were let in."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[tuple[WorkerRef, WorkerMessage]] = asyncio.Queue()
        self.gone: asyncio.Queue[WorkerRef] = asyncio.Queue()
        self.server = LinkServer(
            "unused", on_message=lambda *said: self.inbox.put_nowait(said), on_gone=self.gone.put_nowait
        )
        self.failures: list[BaseException] = []
        self.nursery = aio.Nursery(lambda _, error: self.failures.append(error))
        self.workers: list[FarEnd[ControlMessage]] = []

    def connect(self) -> FarEnd[ControlMessage]:
        theirs, ours = memory_pair()
        self.nursery.spawn(self.server.attach(*ours), name="session")
        worker = worker_end(theirs)
        self.workers.append(worker)
        return worker


@asynccontextmanager
async def hall() -> AsyncIterator[Hall]:
    opened = Hall()
    try:
        yield opened
    finally:
        for worker in opened.workers:
            worker.streams[1].transport.abort()
        await opened.server.close()
        await opened.nursery.close()


async def test_a_worker_is_known_from_its_hello_to_its_end() -> None:
    async with hall() as here:
        worker = here.connect()
        worker.say(hello(3), ACK)
        ref, first = await here.inbox.get()
        assert (ref.slot, ref.pid, ref.started_wall, first) == (3, 103, 1.0, hello(3))
        assert (await here.inbox.get()) == (ref, ACK)
        assert here.server.workers == (ref,)
        worker.streams[1].close()
        assert await here.gone.get() == ref
        assert here.server.workers == ()


async def test_control_can_answer_from_within_the_hello() -> None:
    async with hall() as here:
        here.server._on_message = lambda ref, _: here.server.send(ref, PULSE)
        worker = here.connect()
        worker.say(hello())
        assert await worker.next() == PULSE


async def test_two_sessions_of_one_slot_live_side_by_side() -> None:
    async with hall() as here:
        first, second = here.connect(), here.connect()
        first.say(hello())
        second.say(hello())
        refs = [(await here.inbox.get())[0] for _ in range(2)]
        assert refs[0] != refs[1]
        here.server.send(refs[1], PULSE)
        here.server.broadcast(NewSnapshot(snapshot=Snapshot(generation=1, pools=(), backends=())))
        assert isinstance(await first.next(), NewSnapshot)
        assert await second.next() == PULSE


async def test_sending_to_a_session_that_is_over_does_nothing() -> None:
    async with hall() as here:
        worker = here.connect()
        worker.say(hello())
        ref, _ = await here.inbox.get()
        worker.streams[1].close()
        await here.gone.get()
        here.server.send(ref, PULSE)
        assert here.server.workers == ()


# --- strangers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said,reason",
    [
        (frame(hello(protocol=2)), "the worker speaks protocol 2, control speaks 1"),
        (frame(ACK), "the first message was no hello"),
        (b"\x00\x00\x00\x01\xff", "not a message of the link"),
        ((2**31).to_bytes(4, "big"), "a message of 2147483648 bytes is over the bound"),
    ],
    ids=["protocol", "no hello", "garbage", "too large"],
)
async def test_a_stranger_is_refused_with_the_reason_and_control_hears_nothing(said: bytes, reason: str) -> None:
    async with hall() as here:
        worker = here.connect()
        worker.streams[1].write(said)
        refused = await worker.next()
        assert isinstance(refused, Refused)
        assert reason in refused.reason
        with pytest.raises(EOFError):
            await worker.next()
        assert here.inbox.empty()
        assert here.gone.empty()


async def test_a_connection_without_hello_is_refused_in_time() -> None:
    async with hall() as here:
        worker = here.connect()
        began_at = asyncio.get_running_loop().time()
        assert await worker.next() == Refused(reason="no hello within 2 s")
        assert asyncio.get_running_loop().time() - began_at == pytest.approx(HELLO_S)


async def test_a_connection_that_leaves_before_its_hello_leaves_no_trace() -> None:
    async with hall() as here:
        worker = here.connect()
        worker.streams[1].close()
        with pytest.raises(EOFError):
            await worker.next()
        assert here.gone.empty()
        assert here.failures == []


# --- faults of one session ----------------------------------------------------------------------------------------


async def test_garbage_in_a_session_ends_it_alone() -> None:
    async with hall() as here:
        good, bad = here.connect(), here.connect()
        good.say(hello(0))
        bad.say(hello(1))
        refs = [(await here.inbox.get())[0] for _ in range(2)]
        bad.streams[1].write(b"\x00\x00\x00\x01\xff")
        assert await here.gone.get() == refs[1]
        assert isinstance(await bad.next(), Refused)
        good.say(ACK)
        assert await here.inbox.get() == (refs[0], ACK)


async def test_a_reset_is_the_end_of_that_session() -> None:
    async with hall() as here:
        worker = here.connect()
        worker.say(hello())
        ref, _ = await here.inbox.get()
        transport_of(worker.streams).break_off()
        assert await here.gone.get() == ref
        assert here.failures == []


async def test_a_failing_inbox_ends_the_session_and_is_told() -> None:
    async with hall() as here:
        worker = here.connect()
        worker.say(hello())
        ref, _ = await here.inbox.get()
        here.server._on_message = lambda *_: 1 / 0
        worker.say(ACK)
        assert await here.gone.get() == ref
        with pytest.raises(EOFError):
            await worker.next()
        assert [type(error) for error in here.failures] == [ZeroDivisionError]


async def test_a_worker_that_does_not_read_is_cut_off_and_control_never_waits() -> None:
    async with hall() as here:
        worker = here.connect()
        worker.say(hello())
        ref, _ = await here.inbox.get()
        transport_of(worker.streams).pause_reading()
        large = NewSnapshot(
            snapshot=Snapshot(
                generation=1, pools=(), backends=(), cards=(ModelCard(id="m", raw=b" " * (8 * 1024 * 1024)),)
            )
        )
        sent = 0
        while here.server.workers and sent < 100:
            here.server.broadcast(large)
            sent += 1
            await asyncio.sleep(0)
        assert await here.gone.get() == ref
        assert sent * 8 * 1024 * 1024 < MAX_UNSENT_BYTES + 4 * 8 * 1024 * 1024


async def test_close_ends_every_session() -> None:
    async with hall() as here:
        worker = here.connect()
        worker.say(hello())
        ref, _ = await here.inbox.get()
        await here.server.close()
        assert await here.gone.get() == ref
        with pytest.raises(EOFError):
            await worker.next()


# --- the socket ---------------------------------------------------------------------------------------------------


async def test_the_socket_is_private_replaces_a_dead_ones_file_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "link.sock"
    for _ in range(2):
        server = LinkServer(str(path), on_message=lambda *_: None, on_gone=lambda _: None)
        await server.start()
        assert path.stat().st_mode & 0o777 == 0o600
        server._server.close()  # as if killed: the file stays
    await server.close()
    assert not path.exists()


async def test_a_path_that_cannot_be_bound_is_an_error_and_leaves_no_descriptor(tmp_path: Path) -> None:
    server = LinkServer(str(tmp_path / "missing" / "link.sock"), on_message=lambda *_: None, on_gone=lambda _: None)
    with pytest.raises(OSError, match="No such file"):
        await server.start()
    await server.close()
