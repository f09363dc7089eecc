"""Station route: which of several backends, by the rules of their pool.

Owner of what this worker knows for the choice besides the snapshot: measured curves, which backends said that they are
busy, and when the last slow start is over.  Where a pool keeps the default, nobody is new and nobody is busy, nothing
is asked but least in-flight.  The decisions themselves are pure (:mod:`gateway.core.routing.choices`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from gateway.core.link.messages import Pace
from gateway.core.request.body import ParsedBody
from gateway.core.request.session import session_of
from gateway.core.routing.choices import (
    Load,
    Weigh,
    by_session,
    fastest,
    least_by_weight,
    power_of_two,
    to_be_tried,
)
from gateway.core.routing.curve import Curve, predict
from gateway.core.routing.policy import Policy, RoutingPolicy
from gateway.core.routing.rendezvous import number_of
from gateway.core.routing.select import least_in_flight
from gateway.core.routing.slow_start import warm_at, weight
from gateway.core.routing.snapshot import BackendView, Snapshot

MAX_PREDICTIONS = 4096
"""Of one curve, by streams: far above what one backend holds."""


@dataclass(slots=True)
class _Pace:
    """One backend's curve, how many strangers are always there, and what was read off it."""

    curve: Curve
    strangers: int
    predictions: dict[int, float | None] = field(default_factory=dict)

    def at(self, streams: int) -> float | None:
        if streams not in self.predictions:
            if len(self.predictions) >= MAX_PREDICTIONS:
                self.predictions.clear()
            self.predictions[streams] = predict(self.curve, streams + self.strangers)
        return self.predictions[streams]


@dataclass(frozen=True, slots=True)
class _Rule:
    """What to do in one pool; ``warm_at``: until then somebody is in its slow start."""

    policy: RoutingPolicy
    warm_at: float


class Balancer:
    """See the module; one a worker, part of its desk."""

    def __init__(self, *, clock: Callable[[], float], draw: Callable[[], float] | None = None) -> None:
        """``draw`` gives numbers from [0, 1)."""
        self.plain = True
        """Whether least in-flight decides alone: then :meth:`choose` need not be called."""
        self.by_session = False
        """Whether a pool asks for the sessions of its requests."""
        self._clock = clock
        self._draw = draw or random.Random().random  # noqa: S311 - spreads load, keeps no secret
        self._rules: dict[str, _Rule] = {}  # of pools that are not plain
        self._paces: dict[str, _Pace] = {}
        self._old: set[str] = set()  # those of which one request should find out how they are now
        self._seeds: dict[str, int] = {}
        self._busy_until: dict[str, float] = {}

    # --- what is known --------------------------------------------------------------------------------------------

    def follow(self, snapshot: Snapshot) -> None:
        """The fleet is this one now."""
        now = self._clock()
        self._rules.clear()
        for pool in snapshot.pools:
            policy, members = pool.routing, [it for it in snapshot.backends if it.pool == pool.name]
            warm = warm_at(members, policy.slow_start_s)
            if policy.policy is not Policy.LEAST_IN_FLIGHT or warm > now:
                self._rules[pool.name] = _Rule(policy, warm)
        self.by_session = any(pool.routing.policy is Policy.SESSION for pool in snapshot.pools)
        self._seeds = {backend.name: number_of(backend.name.encode()) for backend in snapshot.backends}
        for owned in (self._paces, self._busy_until):
            for name in [name for name in owned if name not in self._seeds]:
                del owned[name]
        self._old &= self._seeds.keys()
        self._settle()

    def learn(self, pace: Pace) -> None:
        """A backend was measured."""
        self._paces[pace.backend] = _Pace(pace.curve, pace.strangers)
        self._old.discard(pace.backend)
        if pace.old:
            self._old.add(pace.backend)

    def busy(self, backend: str, busy_s: float) -> None:
        """``backend`` said that it cannot take more at present."""
        self._busy_until[backend] = self._clock() + busy_s
        self._settle()

    def free_in_s(self, backends: Iterable[BackendView]) -> float:
        """When the first of ``backends`` may take more; 0: now."""
        now = self._clock()
        return max(0.0, min((self._busy_until.get(it.name, now) for it in backends), default=now) - now)

    def session_of(self, pool: str, body: ParsedBody, header: str | None) -> int | None:
        """The session of a request, where its pool asks for it."""
        rule = self._rules.get(pool)
        if rule is None or rule.policy.policy is not Policy.SESSION:
            return None
        return session_of(body, header, prefix_bytes=rule.policy.prefix_bytes)

    # --- the choice -----------------------------------------------------------------------------------------------

    def choose(
        self, backends: Sequence[BackendView], load: Load, *, session: int | None, turn: int
    ) -> BackendView | None:
        """One of ``backends``, which are of one pool; None when there is none."""
        if self._busy_until:
            backends = self._without_busy(backends)
        rule = self._rules.get(backends[0].pool) if self._rules and backends else None
        if rule is None:
            return least_in_flight(backends, load, turn=turn)
        return self._by_rule(rule, backends, load, session=session, turn=turn)

    def _without_busy(self, backends: Sequence[BackendView]) -> Sequence[BackendView]:
        now = self._clock()
        for name in [name for name, until in self._busy_until.items() if until <= now]:
            del self._busy_until[name]
        self._settle()
        return [backend for backend in backends if backend.name not in self._busy_until] or backends

    def _by_rule(
        self, rule: _Rule, backends: Sequence[BackendView], load: Load, *, session: int | None, turn: int
    ) -> BackendView | None:
        policy, weigh = rule.policy, self._weigh(rule, backends[0].pool)
        match policy.policy:
            case Policy.POWER_OF_TWO:
                return power_of_two(backends, load, weigh=weigh, draw=self._draw)
            case Policy.SESSION if session is not None:
                return by_session(backends, load, session=session, seeds=self._seeds, weigh=weigh)
            case Policy.MEASURED_RATE:
                if self._old and (tried := to_be_tried(backends, load, old=self._old)) is not None:
                    self._old.discard(tried.name)
                    return tried
                return fastest(backends, load, rate=self._rate, weigh=weigh, draw=self._draw, turn=turn)
            case Policy.SESSION | Policy.LEAST_IN_FLIGHT:
                if weigh is None:
                    return least_in_flight(backends, load, turn=turn)
                return least_by_weight(backends, load, weigh=weigh, draw=self._draw)
            case _:
                assert_never(policy.policy)

    def _weigh(self, rule: _Rule, pool: str) -> Weigh | None:
        """None where every backend of the pool has its whole weight; a plain pool is plain again from then on."""
        now = self._clock()
        if now < rule.warm_at:
            return partial(weight, slow_start_s=rule.policy.slow_start_s, now=now)
        if rule.policy.policy is Policy.LEAST_IN_FLIGHT:
            del self._rules[pool]
            self._settle()
        return None

    def _settle(self) -> None:
        self.plain = not (self._rules or self._busy_until)

    def _rate(self, backend: str, streams: int) -> float | None:
        pace = self._paces.get(backend)
        return None if pace is None else pace.at(streams)
