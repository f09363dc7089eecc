"""Station admit: what the key of a request may still use, at this worker.

Owner of one meter a key.  A limit that is used up refuses at once, with the time when it will not be.  With several
workers a share may be used up while the limit is not: then a request waits a moment for control to move shares about,
rather than be refused by the luck of which worker it came to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from gateway.core.admission.keys import Key
from gateway.core.admission.ledger import Claim, ShareTable
from gateway.core.admission.quota import KeyMeter, Refusal, Resource, judge, limits_of
from gateway.proxy.visit import Visit
from gateway.refusals import QuotaExceeded

PATIENCE_S: Final = 1.0
"""How long a request waits for a share that another worker may have: some rounds of sharing out."""

MAX_PATIENT: Final = 64
"""Requests of one key that wait so; one more is refused at once."""

_WORDS: Final[Mapping[Resource, tuple[str, str]]] = MappingProxyType(
    {
        Resource.CONCURRENCY: ("concurrency", "requests at once"),
        Resource.REQUESTS: ("requests_per_minute", "requests a minute"),
        Resource.TOKENS: ("tokens_per_minute", "tokens a minute"),
        Resource.DAY: ("tokens_per_day", "tokens a day"),
    }
)
"""The setting of each limit, and its unit."""

_OF_WHAT_WAS_MADE: Final = frozenset({Resource.REQUESTS})
"""Limits of asking after a stored response or cancelling it, which costs nothing: one that is being made may hold all
that its key has, and its client must be able to look after it."""


class Quotas:
    """See the module; one a worker."""

    def __init__(
        self,
        *,
        shares: ShareTable,
        clock: Callable[[], float],
        wall: Callable[[], float],
        hurry: Callable[[], None],
    ) -> None:
        """``hurry()``: control should hear soon that a share is too small."""
        self._shares = shares
        self._clock = clock
        self._wall = wall
        self._hurry = hurry
        self._meters: dict[str, KeyMeter] = {}
        self._limits: dict[str, dict[Resource, int]] = {}
        self._spent: Mapping[str, int] = {}
        self._patient: dict[str, list[asyncio.Future[None]]] = {}
        self._waiting: Counter[str] = Counter()

    def set_keys(self, keys: Iterable[Key]) -> None:
        """The keys are these now; what the others have used is forgotten once none of their requests is left."""
        self._limits = {key.id: limits_of(key.limits) for key in keys}
        for key_id in [it for it, meter in self._meters.items() if it not in self._limits and not meter.inside]:
            del self._meters[key_id]

    def spent(self, spent: Mapping[str, int]) -> None:
        """What was used today of limits of the day, of which no living worker knows."""
        self._spent = spent

    def news(self) -> None:
        """Shares have changed: look again whether those that wait may come in."""
        for key_id in list(self._patient):
            self._look_again(key_id)

    async def enter(self, visit: Visit, key: Key) -> None:
        """Let a request of ``key`` in, until it is to :meth:`leave`.  Raises QuotaExceeded."""
        meter = self._meter(key.id)
        made = bool(visit.thing)
        refusal = self._judge(key, meter, made=made)
        if refusal is not None and refusal.elsewhere:
            refusal = await self._wait(key, meter, refusal, made=made)
        if refusal is not None:
            name, words = _WORDS[refusal.resource]
            raise QuotaExceeded(
                f"the limit of this key is used up: {refusal.limit} {words}",
                param=name,
                retry_after_s=refusal.retry_after_s,
            )
        visit.entered = meter.enter(self._clock())
        if visit.reserves:
            visit.reserved = meter.set_aside(visit.reserves, now=self._clock(), now_wall=self._wall())

    def _judge(self, key: Key, meter: KeyMeter, *, made: bool) -> Refusal | None:
        limits = self._limits.get(key.id)
        if limits and made:
            limits = {it: limit for it, limit in limits.items() if it in _OF_WHAT_WAS_MADE}
        if not limits:
            return None
        if self._shares.lone and Resource.DAY in limits:
            limits = {
                **limits,
                Resource.DAY: max(0, limits[Resource.DAY] - self._spent.get(Resource.DAY.of(key.id), 0)),
            }
        shares = {it: self._shares.of(it.of(key.id), limit) for it, limit in limits.items()}
        return judge(meter, limits, shares=shares, now=self._clock(), now_wall=self._wall())

    async def _wait(self, key: Key, meter: KeyMeter, refusal: Refusal, *, made: bool) -> Refusal | None:
        """Wait for a larger share; None when it came in time."""
        found: Refusal | None = refusal
        resource = refusal.resource.of(key.id)
        if self._waiting[resource] >= MAX_PATIENT:
            return refusal
        self._waiting[resource] += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    while found is not None and found.elsewhere:
                        self._hurry()
                        await self._turn(key.id)
                        found = self._judge(key, meter, made=made)
        finally:
            self._waiting[resource] -= 1
        return found

    async def _turn(self, key_id: str) -> None:
        """Returns when something has changed for the key."""
        patient = self._patient.setdefault(key_id, [])
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        patient.append(future)
        try:
            await future
        finally:
            if future in patient:
                patient.remove(future)
            if not patient and self._patient.get(key_id) is patient:
                del self._patient[key_id]

    def _look_again(self, key_id: str) -> None:
        for future in self._patient.pop(key_id, ()):
            if not future.done():
                future.set_result(None)

    def _meter(self, key_id: str) -> KeyMeter:
        meter = self._meters.get(key_id)
        if meter is None:
            meter = self._meters[key_id] = KeyMeter()
        return meter

    def leave(self, visit: Visit, key: Key, *, tokens: int) -> None:
        """A request of ``key`` has ended, having cost ``tokens``; another may come in for it."""
        if visit.entered is None:  # it was never let in
            return
        now, meter = self._clock(), self._meter(key.id)
        meter.leave(visit.entered, now, served=visit.reached)
        if visit.reserved is not None:
            meter.back(visit.reserved, now=now, now_wall=self._wall())
        if tokens:
            meter.charge(tokens, now=now, now_wall=self._wall())
        if self._patient:
            self._look_again(key.id)

    def claims(self) -> dict[str, Claim]:
        """What this worker says of the limits of keys: those that it holds something of, or was told a share of.

        All of them also where there is nobody to share with: keys are told what counts against their limits.
        """
        now, now_wall = self._clock(), self._wall()
        found: dict[str, Claim] = {}
        for key_id, limits in self._limits.items():
            meter = self._meters.get(key_id)
            for resource in limits:
                name = resource.of(key_id)
                holding = 0 if meter is None else meter.holding(resource, now=now, now_wall=now_wall)
                claim = self._shares.claim(name, holding=holding, waiting=self._waiting[name])
                if holding or claim.share or claim.waiting:
                    found[name] = claim
        return found
