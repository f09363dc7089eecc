"""The child's end of the tether, on a real socket pair: words, orders, and the end when it is cut."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from gateway import aio
from gateway.app.tether import Tether, watch_from_aside
from gateway.core.tether import Adopt, Beat, Drained, Lines, Ready, Reload, Stop, line

pytestmark = pytest.mark.asyncio


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The supervisor's end and the child's."""
    supervisor, child = socket.socketpair()
    supervisor.settimeout(0)
    with supervisor, child:
        yield supervisor, child


class Child:
    """A running tether and what it handed on."""

    def __init__(self, sock: socket.socket) -> None:
        self.orders: asyncio.Queue = asyncio.Queue()
        self.lost = asyncio.Event()
        self.tether = Tether(sock, on_order=self.orders.put_nowait, on_lost=self.lost.set)
        self.task = aio.spawn(self.tether.run(), name="tether")

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


async def test_it_beats_at_once_and_says_what_it_is_told_to_say(pair) -> None:
    supervisor, sock = pair
    child = Child(sock)
    lines = Lines()
    heard = lines.feed(await asyncio.get_running_loop().sock_recv(supervisor, 4096))
    child.tether.ready()
    child.tether.drained()
    while len(heard) < 3:
        heard += lines.feed(await asyncio.get_running_loop().sock_recv(supervisor, 4096))
    assert heard == [Beat(), Ready(), Drained()]
    await child.end()


async def test_orders_are_handed_on_and_words_of_a_child_are_not(pair) -> None:
    supervisor, sock = pair
    child = Child(sock)
    supervisor.send(line(Adopt(1)) + line(Beat()) + b"nonsense\n" + line(Stop(3.5)) + line(Reload()))
    assert [await child.orders.get() for _ in range(3)] == [Adopt(1), Stop(3.5), Reload()]
    await child.end()


async def test_a_supervisor_that_is_gone_is_told_once(pair) -> None:
    supervisor, sock = pair
    child = Child(sock)
    supervisor.close()
    await child.lost.wait()
    await child.task
    child.tether.drained()  # nobody hears it, and that is no error
    assert child.orders.empty()
    assert child.task.exception() is None


async def test_orders_that_came_before_the_end_are_still_carried_out(pair) -> None:
    supervisor, sock = pair
    child = Child(sock)
    supervisor.send(line(Reload()))
    supervisor.close()
    await child.lost.wait()
    assert child.orders.get_nowait() == Reload()


async def test_a_supervisor_that_does_not_read_makes_the_child_wait_for_nothing(pair) -> None:
    supervisor, sock = pair
    child = Child(sock)
    for _ in range(100_000):
        child.tether.ready()
    supervisor.send(line(Reload()))
    assert await child.orders.get() == Reload()
    await child.end()


async def test_the_watch_from_aside_ends_a_stuck_process_only_after_the_tether_was_cut(pair, monkeypatch) -> None:
    supervisor, sock = pair
    monkeypatch.setattr("gateway.app.tether.LAST_WORDS_S", 0.01)
    ended: list[int] = []
    thread = watch_from_aside(sock.fileno(), end=ended.append)
    supervisor.send(line(Reload()))
    assert ended == []
    assert thread.is_alive()
    supervisor.close()
    thread.join(10.0)  # the loop is stuck meanwhile, as it is in the case that this is for
    assert ended == [1]
