"""The engine machine in real time: one timer over its next step.

Shell.  Virtual seconds are real seconds times ``speed``.  A late timer does not slow the engine: steps carry their own
instants and are caught up in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from gateway.simulator.request import Counters, Emission, EngineDead, SimRequest

# The loop's timers count whole milliseconds: what comes due within half of one is done now.
_GRACE_S: Final = 0.0005
# So much a late tick may catch up at once, in steps, before sockets are served again.
_STEPS_A_TICK: Final = 200


class Engine(Protocol):
    """The engine machine, as the shells use it; instants are virtual seconds."""

    def submit(self, request: SimRequest, now: float) -> int:
        """Queue a request and return its number; QueueFull or EngineDead otherwise."""

    def abort(self, request_id: int, now: float) -> None:
        """Forget a request."""

    def next_at(self) -> float | None:
        """Return when the next step is due, None when there is nothing to do."""

    def step(self, now: float) -> list[Emission]:
        """Do the step that is due."""

    def counters(self) -> Counters:
        """Return the counts of now."""


class Driver:
    """Owner of the timer; ``on_emissions(emissions)`` gets what a step gave, ``on_dead()`` hears of a dead engine."""

    def __init__(self, engine: Engine, *, speed: float, on_emissions: Callable[[list[Emission]], None]) -> None:
        self._engine = engine
        self._speed = speed
        self._on_emissions = on_emissions
        self._loop = asyncio.get_running_loop()
        self._origin_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._is_stopped = False
        self.on_dead: Callable[[], None] | None = None

    def now(self) -> float:
        """Return the virtual instant."""
        return (self._loop.time() - self._origin_s) * self._speed

    def submit(self, request: SimRequest) -> int:
        """Queue a request; raises as the engine does."""
        try:
            number = self._engine.submit(request, self.now())
        except EngineDead:
            if self.on_dead is not None:
                self.on_dead()
            raise
        self.arm()
        return number

    def abort(self, request_id: int) -> None:
        """Forget a request."""
        self._engine.abort(request_id, self.now())
        self.arm()

    def stop(self) -> None:
        """Let no further step happen."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def arm(self) -> None:
        """Set the timer to the engine's next step."""
        due = self._engine.next_at()
        if due is None or self._is_stopped:
            return
        at_s = self._origin_s + due / self._speed
        if self._timer is not None:
            if self._timer_at_s <= at_s:
                return
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        horizon = (self._loop.time() + _GRACE_S - self._origin_s) * self._speed
        for _ in range(_STEPS_A_TICK):
            due = self._engine.next_at()
            if due is None or due > horizon or self._is_stopped:
                break
            emissions = self._engine.step(due)
            if emissions:
                self._on_emissions(emissions)
        self.arm()
