"""When does silence end a request: the first-event, stall and total timers as one decision.

Station relay.  Pure: the shell asks at the time that the last answer named, so that one lazy timer a request is
enough and no timer is touched per chunk.  An engine that is silent but alive (``include_reasoning: false`` while it
thinks) is told from a dead one by its own token counter, read by control and passed on as pulses.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.core.routing.snapshot import TimerPolicy
from gateway.core.stream.summary import Ending


class PulseReading(Struct, frozen=True):
    """The engine's generation counter (tokens) as read at monotonic ``read_at``."""

    read_at: float
    generation_tokens: float


class PulseTrack:
    """The recent readings of one backend, oldest first, covering ``window_s``.  Owner: the worker's route station."""

    __slots__ = ("_readings", "window_s")

    def __init__(self, window_s: float) -> None:
        self._readings: list[PulseReading] = []
        self.window_s = window_s

    def add(self, reading: PulseReading) -> None:
        """Keep ``reading``; a counter that went back (the engine restarted) forgets what was before."""
        kept = self._readings
        if kept and reading.generation_tokens < kept[-1].generation_tokens:
            kept.clear()
        kept.append(reading)
        first_needed = reading.read_at - self.window_s
        if kept[0].read_at < first_needed:
            self._readings = [r for r in kept if r.read_at >= first_needed]

    def advancing_since(self, since: float, *, now: float, fresh_s: float) -> bool:
        """Whether a reading under ``fresh_s`` old shows the counter above the first reading after ``since``."""
        if not self._readings:
            return False
        latest = self._readings[-1]
        if now - latest.read_at >= fresh_s:
            return False
        base = next((r for r in self._readings if r.read_at >= since), latest)
        return latest.generation_tokens > base.generation_tokens


class Silence(Struct, frozen=True):
    """Either ``ending`` says that the request ends now, or ``check_at`` when to ask again (monotonic)."""

    check_at: float
    ending: Ending | None = None


RECHECK_S = 1.0
"""How often a silent but living stream is looked at again; pulses come every 2 s."""


def judge_silence(
    timers: TimerPolicy,
    *,
    now: float,
    sent_at: float,
    last_byte_at: float | None,
    blocked: bool,
    pulses: PulseTrack,
) -> Silence:
    """What silence means at ``now``.

    ``last_byte_at`` is None before the first event (then ``first_event_s`` from ``sent_at`` counts); ``blocked`` says
    that we ourselves do not read, because the client does not take bytes: that silence is not the engine's.
    """
    total_at = sent_at + timers.total_s if timers.total_s > 0 else float("inf")
    if now >= total_at:
        return Silence(now, Ending.TOTAL_TIMEOUT)
    if last_byte_at is None:
        first_at = sent_at + timers.first_event_s
        if now >= first_at:
            return Silence(now, Ending.FIRST_EVENT_TIMEOUT)
        return Silence(min(first_at, total_at))
    if blocked:
        return Silence(min(now + timers.stall_s, total_at))
    stall_at = last_byte_at + timers.stall_s
    if now < stall_at:
        return Silence(min(stall_at, total_at))
    silent_until = last_byte_at + timers.silent_max_s
    if now < silent_until and pulses.advancing_since(last_byte_at, now=now, fresh_s=timers.pulse_fresh_s):
        return Silence(min(now + RECHECK_S, silent_until, total_at))
    return Silence(now, Ending.STALL_TIMEOUT)
