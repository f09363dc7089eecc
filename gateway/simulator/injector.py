"""What is injected into a running server: into its own process, or into the box that it shares with others.

Shell.  Other engines on the same card may change the box at any time, so it is looked at again and again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gateway.simulator.card import Card
from gateway.simulator.drift import OF_THE_PROCESS, Drift
from gateway.simulator.driver import Driver
from gateway.simulator.engine import SimEngine
from gateway.simulator.gpu import GpuHost

_LOOK_EVERY_S: Final = 0.25


class Injector:
    """Owner of the way from an injection to an engine; ``crash()`` takes EngineCore down.

    ``driver`` is None until the engine serves.
    """

    def __init__(self, card: Card, engine: SimEngine, *, crash: Callable[[], None]) -> None:
        self._card = card
        self._engine = engine
        self._crash = crash
        self.driver: Driver | None = None

    def inject(self, drift: Drift) -> None:
        """Put an injection in force, or out of it; a crash takes EngineCore down as well.

        ValueError, with nothing changed, for what this box or this engine cannot have.
        """
        self._card.host().check_gpu(drift.gpu)
        self._engine.pacer.drifts.check(drift)
        if drift.kind in OF_THE_PROCESS:
            self._engine.inject(drift, self._now())
            self._wake()
        else:
            self.change(lambda host: host.inject(drift, time.time()))

    def change(self, apply: Callable[[GpuHost], None]) -> None:
        """Change what is wrong with the box."""
        self._card.change(apply)
        self._engine.notice(self._now())
        self._wake()

    async def follow(self) -> None:
        """See what others on the same card change, for ever."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._card.refresh():
                self._engine.notice(self._now())
                self._wake()

    def _now(self) -> float:
        return self.driver.now() if self.driver is not None else 0.0

    def _wake(self) -> None:
        if self._engine.dead:
            self._crash()
        elif self.driver is not None:
            self.driver.arm()
