"""Integration tests run on uvloop, as the product does; those of timers on asyncio's loop, whose time can be faked.

uvloop's transports differ where it matters (they are no subclass of asyncio's, they write later): what passes on one
loop only would be a test of the wrong thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Which loop a test gets."""
    if item.get_closest_marker("looptime") is not None:
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}
