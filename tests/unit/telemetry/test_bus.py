"""The live feed: numbered, bounded, for any number of readers at their own pace."""

from __future__ import annotations

import asyncio

import pytest

from gateway.aio import spawn
from gateway.telemetry.bus import Bus

pytestmark = pytest.mark.asyncio


def published(count: int, **options: int) -> Bus:
    bus = Bus(**options)
    for number in range(count):
        bus.publish("thing", b"%d" % number)
    return bus


async def test_events_are_numbered_by_one_from_the_first() -> None:
    items = published(3, first_id=100).since(99)
    assert [(item.id, item.name, item.data) for item in items] == [
        (100, "thing", b"0"),
        (101, "thing", b"1"),
        (102, "thing", b"2"),
    ]


async def test_a_reader_gets_what_is_newer_than_its_last() -> None:
    bus = published(5)
    assert [item.id for item in bus.since(3)] == [4, 5]
    assert bus.since(5) == []


async def test_a_slow_reader_loses_the_oldest_and_can_see_the_gap() -> None:
    bus = published(100, kept=10)
    assert [item.id for item in bus.since(7)] == list(range(91, 101))


async def test_a_number_that_was_never_given_out_brings_everything_that_is_kept() -> None:
    bus = published(3)
    assert [item.id for item in bus.since(1_000_000)] == [1, 2, 3]
    assert [item.id for item in await bus.wait(1_000_000, timeout_s=1.0)] == [1, 2, 3]


@pytest.mark.looptime
async def test_waiting_ends_with_the_next_event_for_every_reader() -> None:
    bus = published(2)
    readers = [spawn(bus.wait(2, timeout_s=60.0), name="reader") for _ in range(3)]
    await asyncio.sleep(1)
    assert not any(reader.done() for reader in readers)
    bus.publish("news", b"{}")
    assert [[item.id for item in await reader] for reader in readers] == [[3], [3], [3]]


@pytest.mark.looptime
async def test_waiting_for_a_future_number_ends_with_the_next_event_too() -> None:
    bus = Bus()
    reader = spawn(bus.wait(500, timeout_s=60.0), name="reader")
    await asyncio.sleep(1)
    bus.publish("news", b"{}")
    assert [item.id for item in await reader] == [1]


@pytest.mark.looptime
async def test_waiting_returns_nothing_when_nothing_happens() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await published(2).wait(2, timeout_s=15.0) == []
    assert loop.time() - began == 15.0


async def test_what_is_there_already_is_not_waited_for() -> None:
    assert [item.id for item in await published(2).wait(1, timeout_s=0.0)] == [2]
