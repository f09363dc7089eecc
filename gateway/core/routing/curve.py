"""How fast one stream is at a backend that has so many: learnt from the engine's own counters, predicted for routing.

Control learns, workers predict.  Between two readings the tokens over the time that streams spent between their tokens
are the rate of one stream; how many there were is the mean of what ran and waited at both.  An engine that does not
tell that time is measured by its tokens alone, where the second reading finds about as many requests as the first.
Buckets are powers of two of streams, each a moving average.  Between two measured points the rate is interpolated in
the logarithm of streams; outside of them it is guessed so high that it is tried, and so measured.  Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, exp2, inf, log, log2
from operator import attrgetter
from typing import Final

from msgspec import Struct

from gateway.core.routing.reading import EngineReading, generation_tps

MIN_TOKENS_PER_STREAM: Final = 8
"""Between two readings; fewer are a prompt being read, or the end of answers."""

STEADY: Final = 0.25
"""Where requests differ by no more than this part between two readings, it is certain among how many a rate was."""

NEWEST_SHARE: Final = 0.2
"""Of the newest reading in the average, once there are as many that its part would be smaller."""

SLOWING_ABOVE: Final = 0.1
SLOWING_BELOW: Final = 0.3
"""Beyond what was measured a stream is taken to slow down with this power of the number of streams.

Engines go from 0.02 (a small model, few streams) to 0.55 (experts over PCIe, many).  A guess that is too fast is put
right as soon as it is tried; one that is too slow never is, since nothing tries it.
"""

SURPRISE: Final = 1.3
"""Two rates in a row that are so many times above or below what was known mean that the engine is another one now."""

SETTLING_S: Final = 60.0
"""For so long after such a change a further one does not touch what was measured since: it was hardly the same."""

FRESH_S: Final = 600.0
"""A bucket that is so much older than the newest reading is forgotten: engines drift."""

OLD_S: Final = 120.0
"""A backend that nothing was learnt of for so long is worth a request, to see whether it is still as it was."""

CHANGED: Final = 0.05
"""A smaller change of a rate is not worth telling, and a smaller difference between two is none."""

_STRANGERS_OF: Final = 9
"""Readings over which strangers are counted: what workers hold is told a moment later than what engines run."""

_NEAR: Final = log2(1.5)
_LEAST_STRANGERS: Final = 2


class CurvePoint(Struct, frozen=True, kw_only=True):
    """Tokens per second of each of ``streams`` concurrent streams."""

    streams: float
    tps: float


Curve = tuple[CurvePoint, ...]

_STREAMS: Final = attrgetter("streams")


def predict(curve: Sequence[CurvePoint], streams: int) -> float | None:
    """Tokens per second of one of ``streams`` (at least 1) streams; None where nothing was measured."""
    if not curve:
        return None
    at = bisect_left(curve, streams, key=_STREAMS)
    if at == 0:
        return curve[0].tps * float((curve[0].streams / streams) ** SLOWING_BELOW)
    if at == len(curve):
        return curve[-1].tps * float((curve[-1].streams / streams) ** SLOWING_ABOVE)
    before, after = curve[at - 1], curve[at]
    part = log2(streams / before.streams) / log2(after.streams / before.streams)
    return before.tps + part * (after.tps - before.tps)


def differs(told: Curve, now: Curve) -> bool:
    """Whether ``now`` says something that is worth telling after ``told``."""
    return len(told) != len(now) or any(
        abs(new.tps - old.tps) > CHANGED * old.tps or abs(new.streams - old.streams) > CHANGED * old.streams
        for old, new in zip(told, now, strict=True)
    )


@dataclass(slots=True)
class _Bucket:
    readings: int  # 0: made by a rate that does not count yet
    exponent: float  # the mean of log2(streams)
    tps: float
    seen_at: float
    surprise: float = 0.0  # of its newest rate

    def average(self, exponent: float, tps: float, *, at: float) -> None:
        """Take one more rate in; the first one after a while counts as much as all before it."""
        self.readings = 2 if at - self.seen_at > OLD_S else self.readings + 1
        share = max(NEWEST_SHARE, 1 / self.readings)
        self.exponent += share * (exponent - self.exponent)
        self.tps += share * (tps - self.tps)
        self.seen_at = at


class CurveBook:
    """What was learnt of one backend."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._before: EngineReading | None = None
        self._seen_at = 0.0
        self._changed_at = -inf
        self._surprise = 0.0  # the newest rate's
        self._others: deque[float] = deque(maxlen=_STRANGERS_OF)

    def forget(self) -> None:
        """Another engine answers there now."""
        self._buckets.clear()
        self._others.clear()
        self._before = None
        self._changed_at, self._surprise = -inf, 0.0

    def add(self, reading: EngineReading, *, ours: int | None = None) -> None:
        """Learn from ``reading`` and the one before it; ``ours``: requests that this gateway has there, if known."""
        before, self._before = self._before, reading
        if ours is not None and reading.running is not None:
            self._others.append(reading.running + (reading.waiting or 0.0) - ours)
        if (rate := _rate(before, reading)) is None:
            return
        was_old, self._seen_at = self.is_old(now=reading.read_at), reading.read_at
        exponent = log2(rate.streams)
        surprise = self._surprise_of(exponent, rate.tps) if rate.steady or was_old else 0.0
        bucket = self._buckets.setdefault(int(exponent), _Bucket(0, exponent, rate.tps, self._seen_at))
        earlier = next((it for it in (self._surprise, bucket.surprise) if it * surprise > 0), 0.0)
        if surprise and not earlier and not was_old:
            self._surprise = bucket.surprise = surprise
            return  # an accident, or the first sign of a change: the next rate will tell
        if surprise:
            self._change(bucket, exp(surprise if was_old else (surprise + earlier) / 2))
        elif rate.steady:
            self._surprise = bucket.surprise = 0.0
        bucket.average(exponent, rate.tps, at=self._seen_at)

    def _surprise_of(self, exponent: float, tps: float) -> float:
        """The logarithm of a rate over what was expected; 0 where that is not much.

        Far from what was measured the guess is high on purpose, so a rate below it is no surprise.
        """
        places = [it.exponent for it in self._buckets.values()]
        if not places:
            return 0.0
        surprise = log(tps / (predict(self._points(), max(1, round(exp2(exponent)))) or tps))
        near = min(places) - _NEAR <= exponent <= max(places) + _NEAR
        return surprise if abs(surprise) > log(SURPRISE) and (near or surprise > 0) else 0.0

    def _change(self, at: _Bucket, factor: float) -> None:
        """The engine is another one: take the whole curve along, but for what was measured since it last changed."""
        settling = self._seen_at - self._changed_at <= SETTLING_S
        for bucket in self._buckets.values():
            if bucket.readings and (bucket is at or not settling or bucket.seen_at < self._changed_at):
                bucket.tps *= factor
                bucket.readings, bucket.surprise = 1, 0.0
        self._changed_at, self._surprise = self._seen_at, 0.0

    def _points(self) -> Curve:
        found = sorted(self._buckets.values(), key=lambda it: it.exponent)
        return tuple(CurvePoint(streams=exp2(it.exponent), tps=it.tps) for it in found)

    def curve(self) -> Curve:
        """The points by streams; what is too old beside the newest reading is forgotten."""
        for number in [number for number, it in self._buckets.items() if self._seen_at - it.seen_at > FRESH_S]:
            del self._buckets[number]
        return self._points()

    def is_old(self, *, now: float) -> bool:
        """Whether something was learnt, and nothing for :data:`OLD_S`."""
        return bool(self._buckets) and now - self._seen_at > OLD_S

    def strangers(self) -> int:
        """Requests there that are not this gateway's, in the middle of the last readings; few are none."""
        count = round(sorted(self._others)[len(self._others) // 2]) if self._others else 0
        return count if count >= _LEAST_STRANGERS else 0


@dataclass(frozen=True, slots=True)
class _Rate:
    streams: float
    tps: float
    steady: bool


def _rate(before: EngineReading | None, after: EngineReading) -> _Rate | None:
    """What one of how many streams got between two readings; None where that cannot be said."""
    total_tps = generation_tps(before, after)
    if before is None or total_tps is None or before.running is None or after.running is None:
        return None
    running, waiting = (before.running + after.running) / 2, ((before.waiting or 0.0) + (after.waiting or 0.0)) / 2
    tokens = total_tps * (after.read_at - before.read_at)
    if tokens < MIN_TOKENS_PER_STREAM * max(1.0, running):
        return None
    streams = max(1.0, running + waiting)
    steady = abs(after.running - before.running) <= STEADY * min(before.running, after.running)
    decode_s = (after.decode_s or 0.0) - (before.decode_s or 0.0)
    if decode_s > 0:
        return _Rate(streams, tokens / decode_s * (running / streams if waiting else 1.0), steady)
    return _Rate(streams, total_tps / streams, steady) if steady and running >= 1 else None
