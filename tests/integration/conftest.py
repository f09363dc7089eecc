"""Integration tests run on uvloop, as the product does; those of timers on asyncio's loop, whose time can be faked.

uvloop's transports differ where it matters (they are no subclass of asyncio's, they write later): what passes on one
loop only would be a test of the wrong thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import uvloop

from tests.conformance.targets import SimulatedServer


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Which loop a test gets."""
    if item.get_closest_marker("looptime") is not None:
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def start() -> Iterator[Callable[..., SimulatedServer]]:
    """Start simulated servers; all of them are ended."""
    started: list[SimulatedServer] = []

    def begin(*arguments: str, ready: bool = True, **more: Any) -> SimulatedServer:
        server = SimulatedServer(*arguments, **more)
        started.append(server)
        if ready:
            server.await_ready()
        return server

    yield begin
    for server in started:
        server.kill()
