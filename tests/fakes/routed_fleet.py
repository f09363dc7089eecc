"""A pool of modelled engines in fake time, behind real desks of several workers and the real lessons of control.

Streams are fluid: at each step those of an engine advance by its rate among so many.  Control reads the engines'
counters every ``SCRAPE_S``, tells the workers what it learnt, and once a heartbeat what the other workers hold.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.control import inbox
from gateway.control.lessons import Lessons
from gateway.core.link.messages import HEARTBEAT_S, NewSnapshot, Pace, Shares
from gateway.core.routing.backend import ALWAYS, BackendState
from gateway.core.routing.policy import Policy, RoutingPolicy
from gateway.core.routing.reading import EngineReading
from gateway.core.routing.snapshot import BackendView, PoolView, Snapshot
from gateway.proxy.balance import Balancer
from gateway.proxy.lease import Lease
from gateway.proxy.route import Desk
from tests.fakes.fleets import pool, runtime

STEP_S = 0.1
SCRAPE_S = 2.0
TICK_S = 0.5

Rate = Callable[[int, float], float]
"""Tokens per second of each of so many streams at a time."""


@dataclass
class Look:
    """The streams that were open at one moment: the rate of each, by backend, and how many each backend had."""

    at: float
    rates: dict[str, float]
    counts: dict[str, int]


@dataclass
class Stream:
    lease: Lease
    tokens: float
    left: float
    began: float


@dataclass
class RoutedFleet:
    """``streams`` that ask again when they are answered, or arrivals: ``per_s`` a second on average."""

    engines: dict[str, Rate]
    policy: Policy = Policy.MEASURED_RATE
    workers: int = 1
    streams: int = 0
    per_s: float = 0.0
    tokens: float = 235.0
    noise: float = 0.03
    tells_decode_s: bool = True
    strangers: dict[str, int] = field(default_factory=dict)
    seed: int = 1
    now: float = 1000.0
    looks: list[Look] = field(default_factory=list)
    answers: list[tuple[float, str, float]] = field(default_factory=list)  # ended at, backend, rate

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        names = tuple(self.engines)
        routing = RoutingPolicy(policy=self.policy)
        views = tuple(
            BackendView(
                name=it, pool="p", url="http://h:1", state=BackendState.SERVING, models=("m",), serving_since=ALWAYS
            )
            for it in names
        )
        snapshot = NewSnapshot(
            snapshot=Snapshot(generation=1, pools=(PoolView(name="p", routing=routing),), backends=views)
        )
        self.desks = [self._desk(snapshot) for _ in range(self.workers)]
        self.lessons = Lessons(runtime(pool("p", *names, routing={"policy": self.policy.value})))
        self.open: list[Stream] = []
        self.counters = dict.fromkeys(names, 0.0)
        self.made = Counter[str]()
        self.decode_s = dict.fromkeys(names, 0.0)
        self._due = {"scrape": self.now + 0.7, "tick": self.now, "beat": self.now, "arrival": self.now}

    def _desk(self, snapshot: NewSnapshot) -> Desk:
        desk = Desk(slot=0, clock=lambda: self.now, acknowledge=lambda _: None)
        desk.balance = Balancer(clock=lambda: self.now, draw=random.Random(self.seed).random)
        desk.apply(snapshot)
        return desk

    def running(self, name: str) -> int:
        return sum(desk.in_flight.get(name, 0) for desk in self.desks) + self.strangers.get(name, 0)

    def run(self, seconds: float) -> RoutedFleet:
        until = self.now + seconds
        while self.now < until:
            self._step()
        return self

    def _step(self) -> None:
        self.now += STEP_S
        rates = {}
        for name, rate in self.engines.items():
            count = self.running(name)
            rates[name] = rate(max(1, count), self.now) * self.random.gauss(1.0, self.noise)
            self.counters[name] += rates[name] * count * STEP_S
            self.decode_s[name] += count * STEP_S
        self._advance(rates)
        self._ask()
        self._control()
        if round(self.now / STEP_S) % 10 == 0:
            counts = {name: sum(desk.in_flight.get(name, 0) for desk in self.desks) for name in self.engines}
            self.looks.append(Look(self.now, rates, counts))

    def _advance(self, rates: dict[str, float]) -> None:
        going = []
        for it in self.open:
            it.left -= rates[it.lease.backend.name] * STEP_S
            if it.left > 0:
                going.append(it)
                continue
            it.lease.__exit__(None, None, None)
            self.answers.append((self.now, it.lease.backend.name, it.tokens / (self.now - it.began)))
        self.open = going

    def _ask(self) -> None:
        if self.streams:
            while len(self.open) < self.streams:
                self._begin()
            return
        while self._due["arrival"] <= self.now:
            self._due["arrival"] += self.random.expovariate(self.per_s)
            self._begin()

    def _begin(self) -> None:
        lease = self.random.choice(self.desks).lease(pool="p", model="m", tried=())
        lease.__enter__()
        tokens = min(4.0 * self.tokens, self.tokens * 0.85 * self.random.lognormvariate(0.0, 0.6))
        self.open.append(Stream(lease, tokens, tokens, self.now))
        self.made[lease.backend.name] += 1

    def _control(self) -> None:
        for name, every_s, act in (
            ("scrape", SCRAPE_S, self._scrape),
            ("tick", TICK_S, self._tick),
            ("beat", HEARTBEAT_S, self._beat),
        ):
            if self.now >= self._due[name]:
                self._due[name] += every_s
                act()

    def _scrape(self) -> None:
        for name in self.engines:
            running = self.running(name)
            reading = EngineReading(
                read_at=self.now,
                generation_tokens=self.counters[name],
                running=float(running),
                waiting=0.0,
                decode_s=self.decode_s[name] if self.tells_decode_s else None,
            )
            ours = running - self.strangers.get(name, 0)
            self.lessons.read(name, reading, serving_since=ALWAYS, ours=ours)

    def _tick(self) -> None:
        for action in self.lessons.tick(now=self.now):
            if isinstance(action, inbox.Broadcast) and isinstance(action.message, Pace):
                for desk in self.desks:
                    desk.apply(action.message)

    def _beat(self) -> None:
        held = [Counter(desk.in_flight) for desk in self.desks]
        for at, desk in enumerate(self.desks):
            others = sum((load for other, load in enumerate(held) if other != at), Counter[str]())
            desk.apply(Shares(in_flight_limit=8192, others_in_flight=dict(others)))

    # --- what came of it ------------------------------------------------------------------------------------------

    def paces(self, since: float) -> list[float]:
        """Rates of the streams that were open, at each look from ``since`` on, sorted."""
        found = [
            it.rates[name] for it in self.looks if it.at >= since for name, n in it.counts.items() for _ in range(n)
        ]
        return sorted(found)

    def rates(self, since: float) -> list[float]:
        """Rates of the answers that ended from then on, sorted."""
        return sorted(rate for at, _, rate in self.answers if at >= since)
