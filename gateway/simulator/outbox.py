"""The front end's ceiling: so many events a second, and tokens merge while an event waits for its turn.

Shell (one timer).  A real API server encodes events one after the other; when the engine outruns it, a choice that
waits gathers further tokens, which then leave in one event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

_GRAIN_S: Final = 0.001


class Outbox:
    """The queue of choices with something to send; owner of the ceiling's clock. ``send(item)`` sends one."""

    def __init__(self, send: Callable[[Any], None], *, events_per_s: float | None) -> None:
        self._send = send
        self._cost_s = 1 / events_per_s if events_per_s else 0.0
        self._free_at_s = 0.0
        self._waiting: dict[int, Any] = {}  # in the order of their turns
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, key: int, item: object) -> None:
        """Send ``item`` now, or queue it behind the others; a ``key`` that waits already is not queued twice."""
        now_s = self._loop.time()
        if not self._cost_s or (not self._waiting and self._free_at_s <= now_s):
            self._free_at_s = now_s + self._cost_s
            self._send(item)
            return
        self._waiting.setdefault(key, item)
        if self._timer is None:
            self._timer = self._loop.call_at(self._free_at_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_s = self._loop.time() + _GRAIN_S / 2
        while self._waiting and self._free_at_s <= now_s:
            key = next(iter(self._waiting))
            self._free_at_s += self._cost_s
            self._send(self._waiting.pop(key))
        if self._waiting:
            self._timer = self._loop.call_at(self._free_at_s, self._tick)
