"""The live feed over a real socket: order, resuming, gaps, silence, readers that stop and readers that leave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from gateway.admin.limits import AdminLimits
from tests.integration.admin_stand import AdminStand, admin_stand
from tests.integration.raw_http import Answer, read_head

pytestmark = pytest.mark.asyncio

LIMITS = AdminLimits(streams=2, poll_s=0.02, keep_alive_s=0.05, write_s=0.1)


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[AdminStand]:
    async with admin_stand(LIMITS) as made:
        yield made


class Follower:
    """A reader of the feed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.head = Answer(0, {}, b"")

    async def begin(self, sent: bytes) -> None:
        self._writer.write(sent)
        async with asyncio.timeout(20):
            self.head = await read_head(self._reader)

    async def block(self) -> str:
        """The next block: an event or a comment, without HTTP's framing."""
        async with asyncio.timeout(20):
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = await self._reader.readexactly(size + 2)
        return data[:-2].decode()

    async def event(self) -> str:
        """The next block that is no comment."""
        while (block := await self.block()).startswith(":"):
            pass
        return block

    async def ended(self) -> bool:
        """Whether the connection ends before anything else but comments comes."""
        async with asyncio.timeout(20):
            try:
                while data := await self._reader.read(65536):
                    assert b"event:" not in data
            except ConnectionError:
                pass
        return True


@asynccontextmanager
async def following(stand: AdminStand, *, target: str = "/admin/v1/events", last: str = "") -> AsyncIterator[Follower]:
    reader, writer = await stand.connect()
    follower = Follower(reader, writer)
    try:
        await follower.begin(stand.head("GET", target, scope="read", more={"Last-Event-ID": last} if last else {}))
        assert follower.head.status == 200
        assert follower.head.headers["content-type"] == "text/event-stream"
        assert follower.head.headers["cache-control"] == "no-store"
        assert await follower.block() == "retry: 2000\n\n"
        yield follower
    finally:
        writer.close()


async def until(condition, *, within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - the count of streams has no event of its own
            await asyncio.sleep(0.01)


async def publish(stand: AdminStand, count: int) -> None:
    for _ in range(count):
        await stand.feed.publish("backend.state", b'{"n":%d}' % stand.feed.next_id)


def event_of(number: int) -> str:
    return f'id: {number}\nevent: backend.state\ndata: {{"n":{number}}}\n\n'


async def test_a_new_reader_gets_what_happens_from_now_on_in_order(stand: AdminStand) -> None:
    await publish(stand, 3)
    async with following(stand) as follower:
        await publish(stand, 2)
        assert [await follower.event() for _ in range(2)] == [event_of(4), event_of(5)]


async def test_the_first_event_of_all_is_not_missed(stand: AdminStand) -> None:
    async with following(stand) as follower:
        await publish(stand, 1)
        assert await follower.event() == event_of(1)


@pytest.mark.parametrize("how", ["header", "query"])
async def test_a_reader_that_comes_back_gets_what_it_missed(stand: AdminStand, how: str) -> None:
    await publish(stand, 5)
    where = {"last": "3"} if how == "header" else {"target": "/admin/v1/events?last_event_id=3"}
    async with following(stand, **where) as follower:
        assert [await follower.event() for _ in range(2)] == [event_of(4), event_of(5)]


async def test_zero_asks_for_everything_that_is_kept(stand: AdminStand) -> None:
    await publish(stand, 2)
    async with following(stand, last="0") as follower:
        assert [await follower.event() for _ in range(2)] == [event_of(1), event_of(2)]


async def test_what_is_no_longer_kept_is_told_as_a_gap(stand: AdminStand) -> None:
    await publish(stand, 450)
    async with following(stand, last="10") as follower:
        assert await follower.event() == 'event: gap\ndata: {"after":10,"next":51}\n\n'
        assert await follower.event() == event_of(51)


async def test_a_reader_from_before_a_restart_gets_the_new_feed_from_its_start(stand: AdminStand) -> None:
    await publish(stand, 100)
    stand.feed.restart()
    await publish(stand, 2)
    async with following(stand, last="100") as follower:
        assert await follower.event() == 'event: gap\ndata: {"after":100,"next":1}\n\n'
        assert [await follower.event() for _ in range(2)] == [event_of(1), event_of(2)]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30, "1, 2"])
async def test_a_number_that_is_none_is_refused(stand: AdminStand, last: str) -> None:
    answer = await stand.ask("GET", "/admin/v1/events", more={"Last-Event-ID": last})
    assert (answer.status, answer.json()["error"]["param"]) == (400, "Last-Event-ID")


async def test_silence_is_kept_alive_with_comments(stand: AdminStand) -> None:
    async with following(stand) as follower:
        assert [await follower.block() for _ in range(2)] == [": keep-alive\n\n"] * 2


async def test_data_of_several_lines_cannot_break_out_of_its_event(stand: AdminStand) -> None:
    async with following(stand) as follower:
        await stand.feed.publish("x", b"1\r\nevent: forged\n\nid: 9")
        assert await follower.event() == "id: 1\nevent: x\ndata: 1\ndata: event: forged\ndata: \ndata: id: 9\n\n"


async def test_more_readers_than_may_follow_are_turned_away_and_a_place_comes_free(stand: AdminStand) -> None:
    async with following(stand), following(stand):
        answer = await stand.ask("GET", "/admin/v1/events")
        assert (answer.status, answer.code) == (429, "overloaded")
        assert "retry-after" in answer.headers
        assert stand.streams == 2
    await until(lambda: stand.streams == 0)
    async with following(stand):
        assert stand.streams == 1


async def test_a_reader_that_left_in_silence_is_noticed(stand: AdminStand) -> None:
    async with following(stand):
        assert stand.streams == 1
    await until(lambda: stand.streams == 0)
    assert stand.feed.waiting == 0


async def test_a_reader_that_takes_nothing_is_dropped(stand: AdminStand) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, stand.socket.getsockname())
    await asyncio.get_running_loop().sock_sendall(sock, stand.head("GET", "/admin/v1/events", scope="read"))
    await until(lambda: stand.streams == 1)
    for _ in range(100):
        await stand.feed.publish("big", b'"' + b"x" * 100_000 + b'"')
    async with following(stand, last=str(stand.feed.next_id - 1)) as healthy:
        await until(lambda: stand.streams == 1)
        await publish(stand, 1)
        assert await healthy.event() == event_of(101)
    sock.close()


async def test_the_end_of_the_api_ends_its_streams(stand: AdminStand) -> None:
    async with following(stand) as follower:
        await stand.listener.close()
        assert await follower.ended()
        assert stand.streams == 0


async def test_a_feed_that_fails_breaks_the_stream_and_is_told(stand: AdminStand) -> None:
    async with following(stand) as follower:
        failure = RuntimeError("the feed is broken")

        async def fail(last_id: int, *, timeout_s: float) -> list:
            raise failure

        stand.feed.wait = fail  # type: ignore[method-assign]
        assert await follower.ended()
    assert stand.faults == [failure]
    stand.faults.clear()
