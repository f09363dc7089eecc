"""Whether what was sampled during a soak grows: slopes, tolerances and the words for them. Pure.

The slope is the median of the slopes between all pairs of samples (Theil and Sen), so that single samples in the
middle of a burst do not decide; it is taken over streams, not over time, and the first tenth is left out, in which
pools fill and code is loaded.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

MIB = 1024 * 1024
LEFT_OUT = 0.1
MEMORY_MIB = 2.0
"""Growth over the whole run at most, of each process: 21 bytes a stream over 100,000."""

DESCRIPTORS = 32.0
"""The same of descriptors while clients come and go: the pool to the engine breathes with them."""

DESCRIPTORS_AT_REST = 4.0
"""More than before the first stream, once the last client has left: here a leak of single ones shows."""

_FEW_SAMPLES = 8


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the gateway; processes by their role."""

    at_s: float
    streams: int
    resident_bytes: dict[str, int]
    descriptors: dict[str, int]
    threads: dict[str, int]
    in_flight: float
    connections: float


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What one figure did over the run; `grown` is its slope times all streams after the first tenth."""

    what: str
    first: float
    last: float
    grown: float
    tolerated: float
    unit: str

    @property
    def steady(self) -> bool:
        """Whether it grew by no more than is tolerated."""
        return self.grown <= self.tolerated


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median slope between all pairs of points of different x; 0 when there are none."""
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later[0] != earlier[0]
    ]
    return statistics.median(slopes) if slopes else 0.0


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """Memory and descriptors of each process; raises ValueError with too few samples to tell anything."""
    total = samples[-1].streams if samples else 0
    kept = [sample for sample in samples if sample.streams >= LEFT_OUT * total]
    if len(kept) < _FEW_SAMPLES:
        raise ValueError(f"{len(kept)} samples are too few to tell a slope: more streams, or sample more often")
    found = []
    for role in kept[0].resident_bytes:
        memory = [(sample.streams, sample.resident_bytes[role] / MIB) for sample in kept]
        found.append(_growth(f"{role}: resident memory", memory, tolerated=MEMORY_MIB, unit="MiB"))
    for role in kept[0].descriptors:
        held = [(sample.streams, float(sample.descriptors[role])) for sample in kept]
        found.append(_growth(f"{role}: descriptors", held, tolerated=DESCRIPTORS, unit=""))
    return found


def _growth(what: str, points: Sequence[tuple[float, float]], *, tolerated: float, unit: str) -> Growth:
    span = points[-1][0] - points[0][0]
    return Growth(
        what=what,
        first=points[0][1],
        last=points[-1][1],
        grown=slope(points) * span,
        tolerated=tolerated,
        unit=unit,
    )


def at_rest(before: Sample, after: Sample) -> list[str]:
    """What is still held when every client has left, that was not held before the first one came."""
    faults = []
    if after.in_flight:
        faults.append(f"{after.in_flight:g} requests are in flight and no client is there")
    if after.connections:
        faults.append(f"{after.connections:g} client connections are open and no client is there")
    for role, held in after.descriptors.items():
        more = held - before.descriptors.get(role, 0)
        if more > DESCRIPTORS_AT_REST:
            faults.append(f"{role} holds {more} descriptors more than before the first stream")
    for role, count in after.threads.items():
        if count > before.threads.get(role, 0) + 1:
            faults.append(f"{role} has {count} threads, {before.threads.get(role, 0)} before the first stream")
    return faults


def told(found: Sequence[Growth], faults: Mapping[str, Sequence[str]]) -> str:
    """The table and the verdict, for people; `faults` by what they are about."""
    lines = [f"{'over the run, the first tenth left out':40} {'first':>9} {'last':>9} {'grown':>9} {'allowed':>9}"]
    for one in found:
        mark = "" if one.steady else "  GROWS"
        lines.append(
            f"{one.what:40} {one.first:9.1f} {one.last:9.1f} {one.grown:+9.2f} {one.tolerated:9.1f} {one.unit}{mark}"
        )
    lines += [f"{about}: {fault}" for about, several in faults.items() for fault in several]
    good = all(one.steady for one in found) and not any(faults.values())
    lines.append("steady: nothing grows" if good else "NOT STEADY")
    return "\n".join(lines)
