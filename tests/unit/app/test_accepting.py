"""Accepting on slots: the last order holds, however orders and the making of servers interleave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from gateway import aio
from gateway.app.accepting import Accepting

pytestmark = pytest.mark.asyncio


class Slots:
    """Two slots with a listener each, and who was accepted by a worker that accepts on them."""

    def __init__(self) -> None:
        self.listeners = {slot: [socket.create_server(("127.0.0.1", 0))] for slot in (0, 1)}
        self.accepted: list[int] = []
        self.accepting = Accepting(self.listeners, lambda: Greeter(self.accepted))

    async def answered(self, slot: int) -> bool:
        """Whether a client of the slot is accepted; one of slot 0, which must be accepted on, is waited for."""
        with socket.create_connection(self.listeners[slot][0].getsockname()) as asked:
            asked.settimeout(0)
            loop = asyncio.get_running_loop()
            with socket.create_connection(self.listeners[0][0].getsockname()) as other:
                other.settimeout(0)
                async with asyncio.timeout(10):
                    assert await loop.sock_recv(other, 1) == b"!"
            return asked.getsockname()[1] in self.accepted


class Greeter(asyncio.Protocol):
    def __init__(self, accepted: list[int]) -> None:
        self.accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.accepted.append(transport.get_extra_info("peername")[1])
        transport.write(b"!")
        transport.close()


@pytest.fixture
def slots() -> Iterator[Slots]:
    made = Slots()
    yield made
    made.accepting.end_all()
    for listeners in made.listeners.values():
        for listener in listeners:
            listener.close()


async def test_a_slot_is_accepted_on_from_begin_to_end_and_begun_anew(slots: Slots) -> None:
    await slots.accepting.begin(0)
    for _ in range(2):
        await slots.accepting.begin(1)
        assert await slots.answered(1)
        slots.accepting.end(1)
        assert not await slots.answered(1)


async def test_a_slot_that_is_given_back_before_its_servers_are_made_is_not_accepted_on(slots: Slots) -> None:
    await slots.accepting.begin(0)
    adopting = slots.accepting.begin(1)
    slots.accepting.end(1)
    await adopting
    assert slots.accepting.may_begin(1)
    assert not await slots.answered(1)


async def test_a_slot_that_is_given_back_while_its_servers_are_made_is_not_accepted_on(slots: Slots) -> None:
    await slots.accepting.begin(0)
    adopting = aio.spawn(slots.accepting.begin(1), name="adopt")
    await asyncio.sleep(0)  # in the midst of it: the loop makes a server in two steps
    assert not adopting.done()
    slots.accepting.end(1)
    await adopting
    assert not await slots.answered(1)


async def test_of_two_orders_only_the_last_makes_servers(slots: Slots) -> None:
    await slots.accepting.begin(0)
    first = aio.spawn(slots.accepting.begin(1), name="first")
    slots.accepting.end(1)
    second = aio.spawn(slots.accepting.begin(1), name="second")
    await asyncio.gather(first, second)
    assert await slots.answered(1)
    slots.accepting.end(1)
    assert not await slots.answered(1)


async def test_no_slot_is_begun_twice_or_without_sockets(slots: Slots) -> None:
    assert slots.accepting.may_begin(1)
    opening = slots.accepting.begin(1)
    assert not slots.accepting.may_begin(1)
    await opening
    assert not slots.accepting.may_begin(1)
    assert not slots.accepting.may_begin(2)
    slots.accepting.end(2)
