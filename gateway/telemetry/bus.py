"""The live feed: a bounded ring of numbered events that any number of readers follow at their own pace.

Written by control, read by the admin API.  A slow reader costs nothing: it finds the oldest events gone and sees that
by the gap in the numbers.  Must not be used to decide anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.ports import FeedItem

DEFAULT_KEPT: Final = 1024
"""Events kept for readers that are late or come back: some seconds at full load, minutes at rest."""


class Bus:
    """Implements :class:`gateway.ports.Feed`.  Owns the ring; belongs to one event loop.

    ``first_id`` is the number of the first event.  Taken from a clock it grows over restarts, so that a reader who
    comes back with the last number of an earlier life is not left waiting.
    """

    def __init__(self, *, first_id: int = 1, kept: int = DEFAULT_KEPT) -> None:
        self._items: deque[FeedItem] = deque(maxlen=kept)
        self._next_id = first_id
        self._news: asyncio.Event | None = None  # there while somebody waits

    def publish(self, name: str, data: bytes) -> None:
        """Add an event; ``data`` is JSON text.  Wakes every waiting reader; never blocks."""
        self._items.append(FeedItem(id=self._next_id, name=name, data=data))
        self._next_id += 1
        if self._news is not None:
            self._news.set()
            self._news = None

    def since(self, last_id: int) -> list[FeedItem]:
        """Kept events newer than ``last_id``; all of them when that number has never been given out."""
        if last_id >= self._next_id:
            return list(self._items)
        missing = self._next_id - 1 - last_id
        if missing <= 0:
            return []
        if missing >= len(self._items):
            return list(self._items)
        return [self._items[at] for at in range(len(self._items) - missing, len(self._items))]

    async def wait(self, last_id: int, *, timeout_s: float) -> list[FeedItem]:
        """Events newer than ``last_id`` as soon as there are any, or [] after ``timeout_s``."""
        if last_id >= self._next_id:
            last_id = self._next_id - 1 - len(self._items)
        try:
            async with asyncio.timeout(timeout_s):
                while not (found := self.since(last_id)):
                    self._news = self._news or asyncio.Event()
                    await self._news.wait()
                return found
        except TimeoutError:
            return []
