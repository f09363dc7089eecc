"""How fast one stream is at a backend that has so many: learnt from the engine's own counters, predicted for routing.

Control learns, workers predict.  A reading counts where as many requests ran before as after it and enough tokens were
made between; its rate is divided by them.  Buckets are powers of two of the running requests, each a moving average.
Between two measured points the rate is interpolated in the logarithm of streams; beyond the last one the engine is
taken to be full, so its aggregate stays; below the first one the rate is that of the first.  Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp2, log2
from operator import attrgetter
from typing import Final

from msgspec import Struct

from gateway.core.routing.reading import EngineReading, generation_tps

MIN_TOKENS_PER_STREAM: Final = 8
"""Between two readings; fewer are a prompt being read, or the end of answers."""

NEWEST_SHARE: Final = 0.2
"""Of the newest reading in the average, once there are as many that its part would be smaller."""

FRESH_S: Final = 600.0
"""A bucket that was not measured for so long is forgotten: engines drift, and only traffic can tell."""

CHANGED: Final = 0.05
"""A smaller change of a rate is not worth telling."""


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
        return curve[0].tps
    before = curve[at - 1]
    if at == len(curve):
        return before.tps * before.streams / streams
    after = curve[at]
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
    readings: int
    exponent: float  # the mean of log2(streams)
    tps: float
    seen_at: float


class CurveBook:
    """What was learnt of one backend."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._before: EngineReading | None = None

    def forget(self) -> None:
        """Another engine answers there now."""
        self._buckets.clear()
        self._before = None

    def add(self, reading: EngineReading) -> None:
        """Learn from ``reading`` and the one before it."""
        before, self._before = self._before, reading
        running = reading.running
        if before is None or not running or running < 1 or before.running != running:
            return
        total_tps = generation_tps(before, reading)
        if total_tps is None or total_tps * (reading.read_at - before.read_at) < MIN_TOKENS_PER_STREAM * running:
            return
        exponent, tps = log2(running), total_tps / running
        bucket = self._buckets.get(int(exponent))
        if bucket is None:
            self._buckets[int(exponent)] = _Bucket(1, exponent, tps, reading.read_at)
            return
        bucket.readings += 1
        share = max(NEWEST_SHARE, 1 / bucket.readings)
        bucket.exponent += share * (exponent - bucket.exponent)
        bucket.tps += share * (tps - bucket.tps)
        bucket.seen_at = reading.read_at

    def curve(self, *, now: float) -> Curve:
        """The points by streams; what is too old is forgotten."""
        for number in [number for number, it in self._buckets.items() if now - it.seen_at > FRESH_S]:
            del self._buckets[number]
        found = sorted(self._buckets.values(), key=lambda it: it.exponent)
        return tuple(CurvePoint(streams=exp2(it.exponent), tps=it.tps) for it in found)
