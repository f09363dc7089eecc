"""A worker's choice of a backend: the rule of the pool, who is new, who is busy."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gateway.core.link.messages import Pace
from gateway.core.request.body import parse_body
from gateway.core.routing.backend import ALWAYS, BackendState
from gateway.core.routing.curve import Curve, CurvePoint
from gateway.core.routing.policy import Policy, RoutingPolicy
from gateway.core.routing.snapshot import BackendView, PoolView, Snapshot
from gateway.core.stream.summary import Dialect
from gateway.proxy import balance
from gateway.proxy.balance import Balancer


class Scene:
    """A balancer over backends of one pool; ``loads`` is what is in flight on them."""

    def __init__(self, policy: Policy = Policy.LEAST_IN_FLIGHT, **since: float) -> None:
        self.now = 100.0
        self.loads = Counter[str]()
        self.turn = 0
        self.backends = [
            BackendView(
                name=name,
                pool="p",
                url="http://127.0.0.1:1",
                state=BackendState.SERVING,
                serving_since=serving_since,
            )
            for name, serving_since in since.items()
        ]
        self.balance = Balancer(clock=lambda: self.now, draw=random.Random(3).random)
        self.pools = (PoolView(name="p", routing=RoutingPolicy(policy=policy)),)
        self.follow(*self.backends)

    def follow(self, *backends: BackendView) -> None:
        self.balance.follow(Snapshot(generation=1, pools=self.pools, backends=backends))

    def go(self, *, session: int | None = None, hold: bool = False) -> str:
        self.turn += 1
        chosen = self.balance.choose(self.backends, self.loads.__getitem__, session=session, turn=self.turn)
        assert chosen is not None
        self.loads[chosen.name] += hold
        return chosen.name

    def counts(self, times: int, **given: object) -> Counter[str]:
        return Counter(self.go(**given) for _ in range(times))


def shared(tps: float) -> Curve:
    """Each stream as fast as its part of the whole."""
    return tuple(CurvePoint(streams=streams, tps=tps / streams) for streams in range(1, 33))


def test_the_default_is_least_in_flight_and_ties_go_round() -> None:
    scene = Scene(a=ALWAYS, b=ALWAYS)
    assert [scene.go() for _ in range(4)] in (["a", "b"] * 2, ["b", "a"] * 2)
    scene.loads["a"] = 1
    assert scene.counts(4) == {"b": 4}
    assert scene.balance.choose([], scene.loads.__getitem__, session=None, turn=0) is None


@pytest.mark.parametrize("policy", list(Policy))
def test_whatever_the_rule_a_new_backend_gets_little_at_first_and_all_of_its_part_in_the_end(policy: Policy) -> None:
    scene = Scene(policy, a=ALWAYS, b=100.0)
    for name in "ab":
        scene.balance.learn(Pace(backend=name, curve=(CurvePoint(streams=1, tps=100.0), CurvePoint(streams=64, tps=5))))
    for number in range(44):
        scene.go(session=number, hold=True)
    early = scene.loads["b"]
    assert 1 <= early <= 10
    scene.loads.clear()
    scene.now += 20.0
    for number in range(44):
        scene.go(session=number, hold=True)
    assert scene.loads["b"] >= 16


def test_backends_that_are_equally_new_share_as_if_none_were() -> None:
    scene = Scene(a=100.0, b=100.0)
    got = scene.counts(400)
    assert got["a"] == pytest.approx(200, abs=40)
    for _ in range(40):
        scene.go(hold=True)
    assert scene.loads == {"a": 20, "b": 20}


def test_a_plain_pool_is_plain_again_once_everybody_is_warm() -> None:
    scene = Scene(a=ALWAYS, b=100.0)
    scene.go()
    assert not scene.balance.plain
    scene.now += 20.0
    scene.go()
    assert scene.balance.plain
    scene.follow(*scene.backends)
    assert scene.balance.plain


def test_a_busy_backend_is_passed_over_while_another_is_free() -> None:
    scene = Scene(a=ALWAYS, b=ALWAYS)
    scene.loads["b"] = 50
    scene.balance.busy("a", 1.0)
    assert scene.counts(3) == {"b": 3}
    assert scene.balance.free_in_s(scene.backends) == 0
    scene.balance.busy("b", 2.0)
    assert scene.counts(3) == {"a": 3}, "all are busy: as if none were"
    assert scene.balance.free_in_s(scene.backends) == 1.0
    assert scene.balance.free_in_s([]) == 0
    scene.now += 1.0
    assert scene.counts(3) == {"a": 3}
    assert not scene.balance.plain
    scene.now += 1.0
    scene.go()
    assert scene.balance.plain


def test_what_is_known_of_a_backend_goes_with_it() -> None:
    scene = Scene(Policy.MEASURED_RATE, a=ALWAYS, b=ALWAYS)
    scene.balance.busy("a", 30.0)
    scene.balance.learn(Pace(backend="a", curve=(CurvePoint(streams=1, tps=1.0),)))
    scene.follow(scene.backends[1])
    scene.follow(*scene.backends)
    assert scene.counts(4) == {"a": 2, "b": 2}


def test_a_session_keeps_its_backend_and_without_one_the_fewest_win() -> None:
    scene = Scene(Policy.SESSION, a=ALWAYS, b=ALWAYS, c=ALWAYS)
    assert scene.balance.by_session
    homes = {number: scene.go(session=number) for number in range(30)}
    assert homes == {number: scene.go(session=number) for number in range(30)}
    assert set(homes.values()) == {"a", "b", "c"}
    scene.loads.update(a=1, b=1)
    assert scene.counts(3) == {"c": 3}


def test_a_session_is_asked_for_only_where_the_pool_routes_by_it() -> None:
    body = parse_body(b'{"model":"m","messages":[]}', Dialect.CHAT)
    assert Scene(Policy.SESSION, a=ALWAYS).balance.session_of("p", body, "s") is not None
    plain = Scene(a=ALWAYS).balance
    assert (plain.by_session, plain.session_of("p", body, "s")) == (False, None)


def test_predictions_are_kept_up_to_a_bound_and_made_anew_for_a_new_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "MAX_PREDICTIONS", 4)
    scene = Scene(Policy.MEASURED_RATE, a=ALWAYS, b=ALWAYS)
    for name, tps in (("a", 100.0), ("b", 60.0)):
        scene.balance.learn(Pace(backend=name, curve=shared(tps)))
    for _ in range(16):
        scene.go(hold=True)
    assert scene.loads == {"a": 10, "b": 6}
    scene.balance.learn(Pace(backend="a", curve=shared(30.0)))
    assert scene.counts(3) == {"b": 3}


def test_strangers_slow_ours_down() -> None:
    scene = Scene(Policy.MEASURED_RATE, a=ALWAYS, b=ALWAYS)
    scene.balance.learn(Pace(backend="a", curve=shared(100.0), strangers=9))
    scene.balance.learn(Pace(backend="b", curve=shared(60.0)))
    for _ in range(5):
        scene.go(hold=True)
    assert scene.loads == {"b": 5}
    scene.loads["b"] = 6
    assert scene.go() == "a", "a tenth of 100 is more than a seventh of 60"


def test_a_backend_of_which_all_that_is_known_is_old_gets_one_request_while_it_is_idle() -> None:
    scene = Scene(Policy.MEASURED_RATE, a=ALWAYS, b=ALWAYS)
    scene.balance.learn(Pace(backend="a", curve=shared(100.0)))
    scene.balance.learn(Pace(backend="b", curve=shared(10.0), old=True))
    scene.loads["b"] = 1
    assert scene.go() == "a", "somebody is there already"
    scene.loads.clear()
    assert [scene.go() for _ in range(3)] == ["b", "a", "a"]
    scene.balance.learn(Pace(backend="b", curve=shared(10.0), old=True))
    scene.balance.learn(Pace(backend="b", curve=shared(10.0)))
    assert scene.go() == "a", "it was measured meanwhile"
    scene.balance.learn(Pace(backend="b", curve=shared(10.0), old=True))
    scene.follow(scene.backends[0])
    scene.follow(*scene.backends)
    scene.balance.learn(Pace(backend="b", curve=shared(10.0)))
    assert scene.go() == "a"
