"""Many requests in fake time: what each backend of a pool gets."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from gateway.core.link.messages import NewSnapshot
from gateway.core.routing.backend import ALWAYS, BackendState
from gateway.core.routing.policy import RoutingPolicy
from gateway.core.routing.snapshot import BackendView, PoolView, Snapshot
from gateway.proxy.balance import Balancer
from gateway.proxy.lease import Lease
from gateway.proxy.route import Desk


@dataclass
class Traffic:
    """``streams`` clients that ask again as soon as they are answered, over a desk whose clock this moves."""

    since: dict[str, float]
    policy: RoutingPolicy = field(default_factory=RoutingPolicy)
    answer_s: float = 2.0
    now: float = 1000.0
    began: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.desk = Desk(slot=0, clock=lambda: self.now, acknowledge=lambda _: None)
        self.desk.balance = Balancer(clock=lambda: self.now, draw=random.Random(5).random)
        self.random = random.Random(6)
        self.open: list[tuple[float, int, Lease]] = []
        backends = tuple(
            BackendView(
                name=name, pool="p", url="http://h:1", state=BackendState.SERVING, models=("m",), serving_since=since
            )
            for name, since in self.since.items()
        )
        pools = (PoolView(name="p", routing=self.policy),)
        self.desk.apply(NewSnapshot(snapshot=Snapshot(generation=1, pools=pools, backends=backends)))

    def ask(self, number: int) -> None:
        lease = self.desk.lease(pool="p", model="m", tried=())
        lease.__enter__()
        self.began[lease.backend.name] += 1
        heapq.heappush(self.open, (self.now + self.answer_s * self.random.uniform(0.5, 1.5), number, lease))

    def run(self, until: float, *, streams: int) -> Counter[str]:
        """Play until then; what began at each backend since now."""
        before = self.began.copy()
        for number in range(streams - len(self.open)):
            self.ask(number)
        while self.open[0][0] < until:
            self.now, number, lease = heapq.heappop(self.open)
            lease.__exit__(None, None, None)
            self.ask(number)
        self.now = until
        return self.began - before


@pytest.mark.parametrize("streams", [1, 40])
def test_a_backend_that_comes_back_gets_a_growing_share_and_its_whole_part_after_the_slow_start(streams: int) -> None:
    traffic = Traffic(since={"a": ALWAYS, "b": ALWAYS, "c": 1000.0}, answer_s=0.01 * streams)
    shares = []
    for at in (1005.0, 1010.0, 1015.0, 1020.0, 1030.0):
        got = traffic.run(at, streams=streams)
        shares.append(3 * got["c"] / got.total())
    assert shares == sorted(shares)
    assert 0.05 < shares[0] < 0.45, "of its fair part"
    assert 0.35 < shares[1] < 0.75
    assert shares[-1] == pytest.approx(1.0, abs=0.12)


def test_a_fleet_that_is_new_altogether_shares_evenly_from_the_first_request() -> None:
    got = Traffic(since={"a": 1000.0, "b": 1000.0, "c": 1000.0}).run(1005.0, streams=30)
    assert all(count == pytest.approx(got.total() / 3, rel=0.15) for count in got.values())


def test_the_slow_start_can_be_switched_off() -> None:
    policy = RoutingPolicy(slow_start_s=0.0)
    got = Traffic(since={"a": ALWAYS, "b": 1000.0}, policy=policy).run(1005.0, streams=30)
    assert got["b"] == pytest.approx(got.total() / 2, rel=0.1)


def test_a_503_storm_is_backpressure_that_passes() -> None:
    """Backend a is full for three seconds and says so; it gets one request a second to be asked again."""
    traffic = Traffic(since={"a": ALWAYS, "b": ALWAYS}, answer_s=0.2)
    full_until, refused = 1003.0, 0
    for tick in range(600):
        traffic.now = 1000.0 + tick * 0.01
        with traffic.desk.lease(pool="p", model="m", tried=()) as lease:
            if lease.backend.name == "a" and traffic.now < full_until:
                refused += 1
                traffic.desk.balance.busy("a", 1.0)
                with traffic.desk.lease(pool="p", model="m", tried=["a"]) as other:
                    assert other.backend.name == "b"
            traffic.began[lease.backend.name] += 1
    assert 3 <= refused <= 4
    assert traffic.began["a"] >= 100, "and its whole part again afterwards"
