"""Several workers and control in miniature: queues, places on one backend, quotas of keys; in steps of simulated time.

Everything that decides is the product's own; here are only the messages between, each as late as it is in a gateway,
and requests that take their time on a place.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping

from gateway.control.demand import Flows, demand_of
from gateway.core.admission.keys import KeyLimits
from gateway.core.admission.ledger import Claim, Ledger, Limit, ShareTable, places_on, queue_of
from gateway.core.admission.queue import FairQueue, Ticket
from gateway.core.admission.quota import KeyMeter, Resource, judge, limits_of
from gateway.core.admission.shares import Want

STEP_S = 0.01
BEAT_S = 0.5
ROUND_S = 0.1
POOL, BACKEND = "p", "b"


class CrewMember:
    """One worker."""

    def __init__(self, slot: int, *, lone: bool) -> None:
        self.slot = slot
        self.lone = lone
        self.shares = ShareTable(lone=lone)
        self.queue = FairQueue()
        self.meters: dict[str, KeyMeter] = {}
        self.serving: list[tuple[float, str, float, float]] = []  # ends at, key, charged, cost
        self.parts: Mapping[str, float] = {}
        self.beat_at = 0.0
        self.costs: dict[Ticket, float] = {}

    @property
    def serving_by_key(self) -> Counter[str]:
        return Counter(key for _, key, _, _ in self.serving)

    def flows(self) -> dict[str, dict[str, tuple[int, int]]]:
        serving, waiting = self.serving_by_key, dict(self.queue.counts())
        return {POOL: {key: (waiting.get(key, 0), serving[key]) for key in {*waiting, *serving}}}


class Crew:
    """So many workers, ``places`` on one backend and keys with weights and limits; see the module."""

    def __init__(
        self,
        workers: int,
        *,
        places: int = 0,
        weights: Mapping[str, float] | None = None,
        limits: Mapping[str, KeyLimits] | None = None,
        seed: int = 0,
    ) -> None:
        self.chance = random.Random(seed)
        self.now = 1000.0
        self.places = places
        self.weights = dict(weights or {})
        self.limits = {key: limits_of(given) for key, given in (limits or {}).items()}
        self.workers = [CrewMember(slot, lone=workers == 1) for slot in range(workers)]
        self.ledger = Ledger(workers=workers, inherited=False)
        shared = {queue_of(POOL): Limit(total=1000), places_on(BACKEND): Limit(total=places)} if places else {}
        for key, bounds in self.limits.items():
            for resource, limit in bounds.items():
                shared[resource.of(key)] = Limit(total=limit, spent=resource is Resource.DAY)
        if workers > 1:
            self.ledger.set_limits(shared, now=self.now)
        self.flows: dict[Hashable, Flows] = {}
        self.served: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.let_in: Counter[str] = Counter()
        self.most_serving = 0
        self._later: deque[tuple[float, Callable[[], None]]] = deque()
        self._round_at = self.now
        for it in self.workers:
            self.ledger.join(it.slot, it.slot, now=self.now)
            self.beat(it)

    # --- what workers do ------------------------------------------------------------------------------------------

    def ask(self, slot: int, key: str, cost: float, *, priority: int = 0) -> Ticket:
        """A request comes to a worker and waits."""
        it = self.workers[slot]
        it.queue.weigh(key, self.weights.get(key, 1.0) * it.parts.get(key, 1.0))
        ticket = Ticket(key, want="m", queued_at=self.now, priority=priority)
        it.costs[ticket] = cost
        it.queue.offer(ticket, places=1000, share=1.0, now=self.now)
        return ticket

    def enter(self, slot: int, key: str, *, tokens: int = 0) -> bool:
        """Whether a request is let in by its key's quotas; it ends at once, having cost ``tokens``."""
        it = self.workers[slot]
        meter = it.meters.setdefault(key, KeyMeter())
        limits = self.limits[key]
        shares = {resource: it.shares.of(resource.of(key), limit) for resource, limit in limits.items()}
        if judge(meter, limits, shares=shares, now=self.now, now_wall=self.now) is not None:
            it.beat_at = min(it.beat_at, self.now + 2 * STEP_S)
            return False
        meter.leave(meter.enter(self.now), self.now, served=True)
        meter.charge(tokens, now=self.now, now_wall=self.now)
        self.let_in[key] += 1
        self.tokens[key] += tokens
        return True

    def beat(self, it: CrewMember) -> None:
        it.beat_at = self.now + BEAT_S
        claims: dict[str, Claim] = {}
        if self.places:
            claims[queue_of(POOL)] = it.shares.claim(queue_of(POOL), holding=it.queue.waiting)
            claims[places_on(BACKEND)] = it.shares.claim(places_on(BACKEND), holding=len(it.serving))
        for key, bounds in self.limits.items():
            meter = it.meters.setdefault(key, KeyMeter())
            for resource in bounds:
                held = meter.holding(resource, now=self.now, now_wall=self.now)
                claims[resource.of(key)] = it.shares.claim(resource.of(key), holding=held)
        flows = it.flows()
        self._soon(lambda: self._heard(it.slot, claims, flows))

    def _heard(self, slot: int, claims: dict[str, Claim], flows: dict[str, dict[str, tuple[int, int]]]) -> None:
        self.ledger.beat(slot, claims)
        self.flows[slot] = flows

    def _soon(self, act: Callable[[], None]) -> None:
        self._later.append((self.now + STEP_S, act))

    # --- time -----------------------------------------------------------------------------------------------------

    def step(self) -> list[tuple[int, str]]:
        """Let a little time pass; the requests that ended in it, by worker and key."""
        self.now += STEP_S
        while self._later and self._later[0][0] <= self.now:
            self._later.popleft()[1]()
        ended = [(it.slot, key) for it in self.workers for key in self._end(it)]
        for it in self.workers:
            self._serve(it)
            if self.now >= it.beat_at and not it.lone:
                self.beat(it)
        self.most_serving = max(self.most_serving, sum(len(it.serving) for it in self.workers))
        if self.now >= self._round_at:
            self._round_at = self.now + ROUND_S
            self._share_out()
        return ended

    def _end(self, it: CrewMember) -> list[str]:
        ended = [entry for entry in it.serving if entry[0] <= self.now]
        it.serving = [entry for entry in it.serving if entry[0] > self.now]
        for _, key, charged, cost in ended:
            it.queue.settle(key, charged=charged, cost=cost)
            self.served[key] += 1
            self.tokens[key] += int(cost)
        if ended and not it.lone and len(it.serving) >= it.shares.of(places_on(BACKEND), self.places):
            it.beat_at = min(it.beat_at, self.now + 2 * STEP_S)
        return [key for _, key, _, _ in ended]

    def _serve(self, it: CrewMember) -> None:
        while len(it.serving) < it.shares.of(places_on(BACKEND), self.places) and (ticket := it.queue.first()):
            charged = it.queue.serve(ticket, now=self.now)
            cost = it.costs.pop(ticket)
            it.serving.append((self.now + cost / 100.0, ticket.flow, charged, cost))

    def _share_out(self) -> None:
        demand = demand_of(self.flows, self.weights)

        def wants(resource: str) -> dict[Hashable, Want] | None:
            return dict(demand.wants.get(POOL, {})) if resource == places_on(BACKEND) else None

        self.ledger.share_out(fresh=[it.slot for it in self.workers], now=self.now, wants=wants)
        for it in self.workers:
            changed, parts = self.ledger.news(it.slot), demand.parts.get(it.slot, {}).get(POOL, {})

            def tell(it: CrewMember = it, changed: dict[str, int] = changed, parts: dict[str, float] = parts) -> None:
                it.shares.take(changed)
                it.parts = parts
                for key, weight in self.weights.items():
                    it.queue.weigh(key, weight * parts.get(key, 1.0))
                if changed:
                    it.beat_at = min(it.beat_at, self.now + 2 * STEP_S)

            self._soon(tell)
