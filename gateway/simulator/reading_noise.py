"""Readings as a monitor gets them: some are missing, some are old, some are wrong.

Pure; seeded.  Each reading of each look is spoilt for itself, as NVML and the kernel are asked one by one.  An old
value comes with the instant at which it was true; a wrong one looks like any other.  Must not know what a reading
means, except that an index, a name and a uuid are never in doubt.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from gateway.simulator.readings import GpuProcess

_SURE = frozenset({"index", "name", "uuid", "is_lost"})
_KEPT = 8  # looks that an old value may come from
_REASON_BITS = (0x1, 0x4, 0x8, 0x20, 0x40, 0x80)
_GHOST = GpuProcess(pid=4_194_304 + 4711, name="[Not Found]", bytes_held=0)  # a pid that Linux does not give out


class ReadingNoise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chances of a single reading: to be missing, to be an earlier one, to be wrong.  ValueError beyond 0 to 1."""

    missing: float = 0.0
    late: float = 0.0
    spurious: float = 0.0

    def __post_init__(self) -> None:
        if min(self.missing, self.late, self.spurious) < 0 or self.missing + self.late + self.spurious > 1:
            raise ValueError("chances of readings must not be below 0 nor above 1 together")


class Seen(Struct, frozen=True, kw_only=True):
    """One look as it arrived.

    ``values``: by name, None where a reading is missing.  ``late``: the instants at which old ones were true.
    """

    at: float
    values: dict[str, Any]
    late: dict[str, float]

    def shown(self) -> dict[str, Any]:
        """As one flat object."""
        return {**self.values, "at": self.at, "late": self.late}


class Monitor:
    """Owner of what was seen before and of the generator; one for each who looks."""

    __slots__ = ("_past", "_rng")

    def __init__(self, *, seed: int) -> None:
        self._rng = Random(f"readings/{seed}")  # noqa: S311 - a simulation, no secret
        self._past: dict[str, deque[tuple[float, dict[str, Any]]]] = {}

    def look(self, place: str, reading: Struct, *, noise: ReadingNoise, now: float) -> Seen:
        """What a look at ``place`` gives when ``reading`` is the truth."""
        truth = asdict(reading)
        if truth.get("is_lost"):
            return Seen(at=now, values={name: truth[name] if name in _SURE else None for name in truth}, late={})
        past = self._past.setdefault(place, deque(maxlen=_KEPT))
        values, late = dict(truth), {}
        for name, value in truth.items():
            at = self._rng.random()
            if name in _SURE or at >= noise.missing + noise.late + noise.spurious:
                continue
            if at < noise.missing or (at < noise.missing + noise.late and not past):
                values[name] = None
            elif at < noise.missing + noise.late:
                late[name], old = past[int(self._rng.random() * len(past))]
                values[name] = old[name]
            else:
                values[name] = self._wrong(name, value)
        past.append((now, truth))
        return Seen(at=now, values=values, late=late)

    def _wrong(self, name: str, value: Any) -> Any:
        rng = self._rng
        match value:
            case bool():
                return not value
            case int() if name == "reasons":
                return value ^ rng.choice(_REASON_BITS)
            case int():
                return round(_glitch(value, rng))
            case float():
                return _glitch(value, rng)
            case tuple():
                return () if value and rng.random() < 0.5 else (*value, _GHOST)
            case _:
                return "[Unknown Error]"


def _glitch(value: float, rng: Random) -> float:
    """What monitors do show now and then: nothing, a fraction, far too much."""
    return rng.choice((0.0, 0.1, 10.0)) * value if value else 1.0
