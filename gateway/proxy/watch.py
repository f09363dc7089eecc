"""The one timer of an exchange: asks the pure silence machine when it rings, and sleeps again or ends the exchange.

Station relay.  Lazy: nothing is armed or cancelled per chunk, a ring looks at the time of the last byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.core.routing.snapshot import TimerPolicy
from gateway.core.stream.silence import PulseTrack, judge_silence
from gateway.core.stream.summary import Ending


class Watched(Protocol):
    """What the watch has to know of an exchange at any moment."""

    @property
    def last_byte_at(self) -> float | None:
        """When the last byte of the answer's body came; None before."""
        ...

    @property
    def blocked(self) -> bool:
        """Whether reading is paused because the client is behind."""
        ...


class SilenceWatch:
    """Watches one exchange from ``sent_at`` on; owner of its timer handle."""

    __slots__ = ("_clock", "_handle", "_loop", "_on_end", "_pulses", "_sent_at", "_timers", "_watched")

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        timers: TimerPolicy,
        pulses: PulseTrack,
        watched: Watched,
        on_end: Callable[[Ending], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._timers = timers
        self._pulses = pulses
        self._watched = watched
        self._on_end = on_end
        self._sent_at = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The request has been written; silence counts from now."""
        self._sent_at = self._clock()
        self._look()

    def stop(self) -> None:
        """Nothing is watched any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        now = self._clock()
        verdict = judge_silence(
            self._timers,
            now=now,
            sent_at=self._sent_at,
            last_byte_at=self._watched.last_byte_at,
            blocked=self._watched.blocked,
            pulses=self._pulses,
        )
        if verdict.ending is not None:
            self._handle = None
            self._on_end(verdict.ending)
            return
        # The first stall check must not wait for the long first-event timer: look again soon after it can matter.
        delay_s = verdict.check_at - now
        if self._watched.last_byte_at is None:
            delay_s = min(delay_s, self._timers.stall_s)
        self._handle = self._loop.call_later(max(0.001, delay_s), self._look)
