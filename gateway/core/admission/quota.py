"""What one key has used, and whether it may have one more: requests at once, by the minute, tokens by minute and day.

Station admit.  A minute is any sixty seconds, so no minute ever has more than the limit; a day is a day of UTC.  Tokens
are charged when they are known, at the end of a request: admission looks at the balance, which the last answers may
have overdrawn.  With several workers each has a share of every limit (:mod:`gateway.core.admission.shares`), and what
it has used within the window is what it holds.  Pure: ``now`` is monotonic, ``now_wall`` the time of day.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, assert_never

from msgspec import Struct

from gateway.core.admission.drain import Drain
from gateway.core.admission.keys import KeyLimits
from gateway.core.admission.window import Step, Window

MINUTE_S: Final = 60.0
DAY_S: Final = 86400.0


class Resource(StrEnum):
    """What is limited by key; the first word of the name under which workers share it."""

    CONCURRENCY = "concurrency"
    REQUESTS = "requests"
    TOKENS = "tokens"
    DAY = "day"

    def of(self, key_id: str) -> str:
        """The name of this limit of one key."""
        return f"{self.value}:{key_id}"


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a request may not come in now.  ``elsewhere``: not the key's limit, only this worker's share is used up."""

    resource: Resource
    limit: int
    retry_after_s: float
    elsewhere: bool


class DayCount:
    """The sum of what was added since midnight, UTC."""

    __slots__ = ("_day", "_sum")

    def __init__(self) -> None:
        self._day = 0
        self._sum = 0.0

    def add(self, amount: float, now_wall: float) -> None:
        """Add ``amount``."""
        self._sum = self.level(now_wall) + amount

    def level(self, now_wall: float) -> float:
        """The sum at ``now_wall``."""
        day = day_of(now_wall)
        if day != self._day:
            self._day, self._sum = day, 0.0
        return self._sum


def day_of(now_wall: float) -> int:
    """The number of the day, UTC, from 1970."""
    return int(now_wall // DAY_S)


class Reserve(Struct, frozen=True):
    """Tokens that were set aside for a request: how many, in which step of the minute, on which day."""

    tokens: int
    step: Step
    day: int


class KeyMeter:
    """What one key has used at one worker; owned by its gate.

    ``inside`` are requests that were let in and have not ended, waiting ones among them.
    """

    __slots__ = ("day", "drain", "inside", "requests", "tokens")

    def __init__(self) -> None:
        self.inside = 0
        self.requests = Window(MINUTE_S)
        self.tokens = Window(MINUTE_S)
        self.day = DayCount()
        self.drain = Drain()

    def enter(self, now: float) -> Step:
        """A request is let in; what it is to :meth:`leave` with."""
        self.inside += 1
        self.drain.began(now)
        return self.requests.add(1.0, now)

    def leave(self, entered: Step, now: float, *, served: bool) -> None:
        """It has ended; one that no backend has heard of does not count as a request of the minute."""
        self.inside -= 1
        self.drain.freed(now)
        if not served:
            self.requests.take_back(1.0, entered, now=now)

    def charge(self, tokens: int, *, now: float, now_wall: float) -> None:
        """Tokens that a request has cost."""
        self.tokens.add(tokens, now)
        self.day.add(tokens, now_wall)

    def set_aside(self, tokens: int, *, now: float, now_wall: float) -> Reserve:
        """Charge tokens that a request may come to cost; to be taken :meth:`back` when it has ended."""
        self.day.add(tokens, now_wall)
        return Reserve(tokens, self.tokens.add(tokens, now), day_of(now_wall))

    def back(self, reserve: Reserve, *, now: float, now_wall: float) -> None:
        """What was set aside is charged no more; what the minute or the day has forgotten stays forgotten."""
        self.tokens.take_back(reserve.tokens, reserve.step, now=now)
        if day_of(now_wall) == reserve.day:
            self.day.add(-reserve.tokens, now_wall)

    def holding(self, resource: Resource, *, now: float, now_wall: float) -> int:
        """What is used of ``resource``, in whole numbers, rounded up."""
        match resource:
            case Resource.CONCURRENCY:
                return self.inside
            case Resource.REQUESTS:
                return _up(self.requests.level(now))
            case Resource.TOKENS:
                return _up(self.tokens.level(now))
            case Resource.DAY:
                return _up(self.day.level(now_wall))
            case _:
                assert_never(resource)


def _up(level: float) -> int:
    return max(0, -int(-level // 1))


def limits_of(limits: KeyLimits) -> dict[Resource, int]:
    """The bounds that are set."""
    found = (
        (Resource.CONCURRENCY, limits.concurrency),
        (Resource.REQUESTS, limits.requests_per_minute),
        (Resource.TOKENS, limits.tokens_per_minute),
        (Resource.DAY, limits.tokens_per_day),
    )
    return {resource: limit for resource, limit in found if limit is not None}


def judge(
    meter: KeyMeter,
    limits: Mapping[Resource, int],
    *,
    shares: Mapping[Resource, int],
    now: float,
    now_wall: float,
) -> Refusal | None:
    """Why one more request may not come in, None when it may.

    ``shares`` are this worker's parts of ``limits``, the limits themselves where it has no siblings.
    """
    for resource, limit in limits.items():
        share = shares.get(resource, 0)
        if meter.holding(resource, now=now, now_wall=now_wall) < share:
            continue
        return Refusal(
            resource=resource,
            limit=limit,
            retry_after_s=_wait_s(meter, resource, share=max(1, share), now=now, now_wall=now_wall),
            elsewhere=share < limit,
        )
    return None


def _wait_s(meter: KeyMeter, resource: Resource, *, share: int, now: float, now_wall: float) -> float:
    """How long until there is room, as far as can be told."""
    match resource:
        case Resource.CONCURRENCY:
            return meter.drain.wait_s(1, now)
        case Resource.REQUESTS:
            return meter.requests.falls_below(share, now)
        case Resource.TOKENS:
            return meter.tokens.falls_below(share, now)
        case Resource.DAY:
            return DAY_S - now_wall % DAY_S
        case _:
            assert_never(resource)
