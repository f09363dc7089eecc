"""The worker's end: what goes out and when, what is dropped, how it comes back; against an in-memory control."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway import aio
from gateway.core.link.framing import frame
from gateway.core.link.messages import (
    BackendFailure,
    DrainAck,
    Heartbeat,
    Hello,
    Refused,
    Settled,
    WorkerMessage,
)
from gateway.proxy import link as link_module
from gateway.proxy.link import BATCH_RECORDS, BATCH_S, MAX_QUEUED_FAILURES, MAX_QUEUED_RECORDS, WorkerLink
from tests.fakes.link_ends import PULSE, FarEnd, bare_heartbeat, bare_record, control_end
from tests.fakes.memory_streams import Streams, memory_pair, transport_of

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Control:
    """Control as a worker sees it: accepts or refuses connections, keeps what it hears with the instant."""

    def __init__(self) -> None:
        self.away = False
        self.lost = 0
        self.attempts: list[float] = []
        self.ends: asyncio.Queue[Streams] = asyncio.Queue()
        self.made: list[Streams] = []
        self.given: list[Streams] = []
        self.running: asyncio.Task[None]

    def note_lost(self) -> None:
        self.lost += 1

    async def connect(self) -> Streams:
        self.attempts.append(asyncio.get_running_loop().time())
        if self.away:
            raise ConnectionRefusedError("nobody listens")
        theirs, ours = memory_pair()
        self.made.append(ours)
        self.given.append(theirs)
        self.ends.put_nowait(ours)
        return theirs


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("how", ["while it closes", "while control hangs up", "twice"])
async def test_whenever_a_run_is_cancelled_its_connection_is_closed(how: str, steps: int) -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        closing = None
        match how:
            case "while it closes":
                closing = aio.spawn(worker.close(), name="close")
            case "while control hangs up":
                heard.streams[1].close()
            case _:
                control.running.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
        control.running.cancel()
        await asyncio.wait({control.running})
        assert all(transport_of(theirs).is_closing() for theirs in control.given)
        if closing is not None:
            await closing


@asynccontextmanager
async def running(control: Control) -> AsyncIterator[tuple[WorkerLink, list]]:
    """A link that runs, and what its shell was handed."""
    handed: list = []

    def heartbeat() -> Heartbeat:
        return bare_heartbeat(sent_at=asyncio.get_running_loop().time(), dropped=worker.dropped)

    worker = WorkerLink(
        "unused",
        0,
        on_message=handed.append,
        heartbeat=heartbeat,
        started_wall=12.5,
        on_lost=control.note_lost,
        connect=control.connect,
    )
    task = control.running = aio.spawn(worker.run(), name="link")
    try:
        yield worker, handed
    finally:
        task.cancel()
        await asyncio.wait({task})
        for ours in control.made:
            ours[1].transport.abort()


async def test_hello_comes_first_then_a_heartbeat_twice_a_second() -> None:
    control = Control()
    async with running(control):
        heard = control_end(await control.ends.get())
        hello = await heard.next()
        assert isinstance(hello, Hello)
        assert (hello.protocol, hello.slot, hello.started_wall) == (1, 0, 12.5)
        beats = [await heard.next_of(Heartbeat) for _ in range(4)]
    times = [beat.sent_at for beat in beats]
    assert [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)] == [0.5, 0.5, 0.5]


async def test_a_heartbeat_that_control_waits_for_goes_out_at_once() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        first = await heard.next_of(Heartbeat)
        await asyncio.sleep(0.2)
        worker.beat_soon()
        beats = [await heard.next_of(Heartbeat) for _ in range(2)]
    assert [round(beat.sent_at - first.sent_at, 3) for beat in beats] == [0.2, 0.7]


async def test_a_lost_connection_is_told_and_one_that_never_stood_is_not() -> None:
    control = Control()
    control.away = True
    async with running(control):
        await asyncio.sleep(2.0)
        assert (len(control.attempts) > 2, control.lost) == (True, 0)
        control.away = False
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        assert control.lost == 0
        heard.streams[1].close()
        await control.ends.get()
        assert control.lost == 1


async def test_records_wait_for_a_batch_but_not_long() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        offered_at = asyncio.get_running_loop().time()
        for number in range(3):
            worker.offer(bare_record(number))
        worker.offer_failure(BackendFailure(backend="a", code="backend_died", at=1.0))
        settled = await heard.next_of(Settled)
        assert asyncio.get_running_loop().time() - offered_at == pytest.approx(BATCH_S)
    assert [one.request_id for one in settled.records] == ["r-0", "r-1", "r-2"]
    assert [one.code for one in settled.failures] == ["backend_died"]


async def test_a_failure_alone_is_sent_soon_too() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        offered_at = asyncio.get_running_loop().time()
        worker.offer_failure(BackendFailure(backend="a", code="backend_died", at=1.0))
        await heard.next_of(Settled)
        assert asyncio.get_running_loop().time() - offered_at == pytest.approx(BATCH_S)


async def test_a_steady_flow_goes_out_in_batches_however_long_it_lasts() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        counting = aio.spawn(batches_with(heard, records=5000), name="counting")
        for number in range(5000):  # 500 a second; heartbeats send what is queued, too
            worker.offer(bare_record(number))
            await asyncio.sleep(0.002)
        sizes = await counting
    assert len(sizes) <= 10 * (1 / BATCH_S + 2) + 1
    assert min(sizes[1:-1]) >= 5


async def batches_with(heard: FarEnd[WorkerMessage], *, records: int) -> list[int]:
    sizes: list[int] = []
    while sum(sizes) < records:
        sizes.append(len((await heard.next_of(Settled)).records))
    return sizes


async def test_a_full_batch_goes_out_at_once() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        offered_at = asyncio.get_running_loop().time()
        for number in range(2 * BATCH_RECORDS + 1):
            worker.offer(bare_record(number))
        sizes = [len((await heard.next_of(Settled)).records) for _ in range(3)]
        assert asyncio.get_running_loop().time() == offered_at
    assert sizes == [BATCH_RECORDS, BATCH_RECORDS, 1]


async def test_a_drain_acknowledgement_goes_out_at_once_and_only_the_newest_of_a_backend() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        sent_at = asyncio.get_running_loop().time()
        for in_flight in (2, 1, 0):
            worker.send(DrainAck(slot=0, backend="a", generation=3, in_flight=in_flight))
        ack = await heard.next()
        assert ack == DrainAck(slot=0, backend="a", generation=3, in_flight=0)
        assert asyncio.get_running_loop().time() == sent_at
        assert isinstance(await heard.next(), Heartbeat)


async def test_what_control_says_reaches_the_shell_in_order() -> None:
    control = Control()
    async with running(control) as (_, handed):
        heard = control_end(await control.ends.get())
        heard.say(PULSE, PULSE)
        await heard.next_of(Heartbeat)
        await heard.next_of(Heartbeat)
        assert handed == [PULSE, PULSE]


# --- control slow or away -----------------------------------------------------------------------------------------


async def test_records_survive_while_control_is_away_up_to_the_bound_and_the_rest_is_counted() -> None:
    control = Control()
    control.away = True
    async with running(control) as (worker, _):
        for number in range(MAX_QUEUED_RECORDS + 7):
            worker.offer(bare_record(number))
        assert worker.dropped == 7
        assert not worker.connected
        control.away = False
        heard = control_end(await control.ends.get())
        assert (await heard.next_of(Heartbeat)).dropped == 7
        kept = []
        while len(kept) < MAX_QUEUED_RECORDS:
            kept += [one.request_id for one in (await heard.next_of(Settled)).records]
    assert kept == [f"r-{number}" for number in range(MAX_QUEUED_RECORDS)]


async def test_of_failures_the_newest_are_kept() -> None:
    control = Control()
    control.away = True
    async with running(control) as (worker, _):
        for number in range(MAX_QUEUED_FAILURES + 1):
            worker.offer_failure(BackendFailure(backend="a", code="backend_died", at=float(number)))
        control.away = False
        settled = await control_end(await control.ends.get()).next_of(Settled)
    assert (settled.failures[0].at, settled.failures[-1].at) == (1.0, float(MAX_QUEUED_FAILURES))


async def test_a_control_that_does_not_read_makes_nobody_wait_and_memory_stays_bounded() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        transport_of(heard.streams).pause_reading()
        for number in range(3 * MAX_QUEUED_RECORDS):
            worker.offer(bare_record(number))
            if number % 1000 == 0:
                await asyncio.sleep(0.1)
        assert worker.dropped > MAX_QUEUED_RECORDS
        assert transport_of(heard.streams).peer.get_write_buffer_size() < 256 * 1024
        transport_of(heard.streams).resume_reading()
        while (await heard.next_of(Heartbeat)).dropped != worker.dropped:
            pass


async def test_a_batch_whose_connection_breaks_under_it_is_counted_as_dropped() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        transport_of(heard.streams).pause_reading()
        for number in range(BATCH_RECORDS * 8):
            worker.offer(bare_record(number, model="m" * 256))
        await asyncio.sleep(BATCH_S * 2)
        transport_of(heard.streams).break_off()
        again = control_end(await control.ends.get())
        received = 0
        while received + worker.dropped < BATCH_RECORDS * 8:
            received += len((await again.next_of(Settled)).records)
        assert worker.dropped > 0


async def test_a_batch_that_cannot_be_sent_is_counted_and_the_connection_goes_on(monkeypatch) -> None:
    control = Control()
    monkeypatch.setattr(link_module, "frame", lambda message: frame(message, max_bytes=1000))
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        worker.offer(bare_record(1, model="m" * 1000))
        while (await heard.next_of(Heartbeat)).dropped == 0:
            pass
        worker.offer(bare_record(2))
        assert [one.request_id for one in (await heard.next_of(Settled)).records] == ["r-2"]
    assert len(control.attempts) == 1


async def test_the_link_comes_back_with_pauses_that_double_to_one_second() -> None:
    control = Control()
    control.away = True
    async with running(control):
        await asyncio.sleep(5.0)
    gaps = [later - earlier for earlier, later in zip(control.attempts, control.attempts[1:], strict=False)]
    assert [round(gap, 3) for gap in gaps[:7]] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


async def test_a_control_that_spoke_is_looked_for_quickly_again() -> None:
    control = Control()
    async with running(control):
        for _ in range(3):
            heard = control_end(await control.ends.get())
            heard.say(PULSE)
            await heard.next_of(Heartbeat)
            heard.streams[1].close()
        await control.ends.get()
    gaps = [later - earlier for earlier, later in zip(control.attempts, control.attempts[1:], strict=False)]
    assert [round(gap, 3) for gap in gaps] == [0.05, 0.05, 0.05]


@pytest.mark.parametrize(
    "said",
    [frame(Refused(reason="another protocol")), b"\x00\x00\x00\x01\xff", (2**31).to_bytes(4, "big")],
    ids=["refused", "garbage", "too large"],
)
async def test_a_refusal_or_garbage_ends_that_connection_only(said: bytes) -> None:
    control = Control()
    async with running(control) as (_, handed):
        heard = control_end(await control.ends.get())
        heard.say(said)
        with pytest.raises(EOFError):
            await heard.next_of(Settled)
        assert isinstance(await control_end(await control.ends.get()).next(), Hello)
        assert handed == []


async def test_acknowledgements_of_a_lost_connection_are_forgotten() -> None:
    control = Control()
    control.away = True
    async with running(control) as (worker, _):
        await asyncio.sleep(0.01)
        worker.send(DrainAck(slot=0, backend="a", generation=3, in_flight=0))
        control.away = False
        heard = control_end(await control.ends.get())
        assert [type(await heard.next()) for _ in range(3)] == [Hello, Heartbeat, Heartbeat]


# --- the end ------------------------------------------------------------------------------------------------------


async def test_close_sends_what_is_queued_and_a_last_heartbeat() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        await heard.next_of(Heartbeat)
        worker.offer(bare_record(1))
        await worker.close()
        assert isinstance(await heard.next(), Settled)
        assert isinstance(await heard.next(), Heartbeat)
        with pytest.raises(EOFError):
            await heard.next()
    assert len(control.attempts) == 1


async def test_close_waits_for_a_stuck_control_only_so_long() -> None:
    control = Control()
    async with running(control) as (worker, _):
        heard = control_end(await control.ends.get())
        transport_of(heard.streams).pause_reading()
        for number in range(MAX_QUEUED_RECORDS):
            worker.offer(bare_record(number))
        started_at = asyncio.get_running_loop().time()
        await worker.close(timeout_s=0.3)
        assert asyncio.get_running_loop().time() - started_at == pytest.approx(0.3)


async def test_close_while_control_is_away_ends_at_once() -> None:
    control = Control()
    control.away = True
    async with running(control) as (worker, _):
        await asyncio.sleep(3.0)
        started_at = asyncio.get_running_loop().time()
        await worker.close()
        assert asyncio.get_running_loop().time() == started_at
