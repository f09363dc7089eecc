"""The worker's desk: leases, shares, what was alone, drain acknowledgements."""

from __future__ import annotations

import pytest

from gateway.core.link.messages import ControlMessage, DrainAck, NewSnapshot, Pulse, Refused, Shares
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import BackendView, LimitPolicy, PoolView, Snapshot, WorkerPolicy
from gateway.errors import NothingServing, Overloaded
from gateway.proxy.lease import Lease
from gateway.proxy.route import SUSPECT_S, Desk


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A desk, its clock and what it acknowledged."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.acks: list[DrainAck] = []
        self.desk = Desk(slot=3, clock=self.clock, acknowledge=self.acks.append)
        self.generation = 0

    def serve(self, *, in_flight: int = 100, **states: BackendState) -> None:
        self.generation += 1
        backends = tuple(
            BackendView(name=name, pool="p", url="http://127.0.0.1:1", state=state, models=("m",))
            for name, state in states.items()
        )
        policy = WorkerPolicy(limits=LimitPolicy(in_flight=in_flight))
        snapshot = Snapshot(generation=self.generation, pools=(PoolView(name="p"),), backends=backends, policy=policy)
        self.say(NewSnapshot(snapshot=snapshot))

    def say(self, message: ControlMessage) -> None:
        self.desk.apply(message)

    def lease(self) -> Lease:
        return self.desk.lease(pool="p", model="m", tried=())


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.serve(a=BackendState.SERVING, b=BackendState.SERVING)
    return made


def test_a_lease_counts_until_its_end_whatever_the_end(scene: Scene) -> None:
    with scene.lease() as first, scene.lease() as second:
        assert {first.backend.name, second.backend.name} == {"a", "b"}
        assert scene.desk.in_flight == {"a": 1, "b": 1}
    with pytest.raises(RuntimeError), scene.lease():
        raise RuntimeError
    assert scene.desk.in_flight == {}


def test_the_others_load_counts_too(scene: Scene) -> None:
    scene.say(Shares(in_flight_limit=100, others_in_flight={"a": 5}))
    for _ in range(3):
        with scene.lease() as lease:
            assert lease.backend.name == "b"


def test_the_others_load_is_forgotten_with_who_told_it_and_the_share_stays(scene: Scene) -> None:
    scene.say(Shares(in_flight_limit=1, others_in_flight={"a": 5}))
    scene.desk.lost_control()
    with scene.lease() as first, scene.lease() as second:
        assert {first.backend.name, second.backend.name} == {"a", "b"}
    with scene.desk.enter(), pytest.raises(Overloaded):
        scene.desk.enter()


def test_beside_others_a_worker_holds_nothing_before_it_is_told_its_share(scene: Scene) -> None:
    desk = Desk(slot=3, clock=scene.clock, acknowledge=scene.acks.append, share=0)
    desk.apply(NewSnapshot(snapshot=scene.desk.snapshot))
    with pytest.raises(Overloaded):
        desk.enter()
    desk.apply(Shares(in_flight_limit=1, others_in_flight={}))
    with desk.enter():
        assert (desk.share, desk.holding) == (1, 1)


def test_a_suspect_is_passed_over_for_a_moment_if_there_is_another(scene: Scene) -> None:
    scene.desk.suspect("a")
    for _ in range(3):
        with scene.lease() as lease:
            assert lease.backend.name == "b"
    scene.desk.suspect("b")
    with scene.lease():
        pass
    scene.clock.now += SUSPECT_S + 0.1
    names = set()
    for _ in range(4):
        with scene.lease() as lease:
            names.add(lease.backend.name)
    assert names == {"a", "b"}


def test_nothing_serving_says_when_to_come_back(scene: Scene) -> None:
    scene.serve(a=BackendState.EJECTED)
    with pytest.raises(NothingServing) as caught:
        scene.lease()
    assert caught.value.retry_after_s == 2
    assert not scene.desk.serving


def test_the_share_bounds_admission_and_without_one_the_limit_does(scene: Scene) -> None:
    scene.serve(in_flight=2, a=BackendState.SERVING)
    with scene.desk.enter(), scene.desk.enter():
        assert not scene.desk.quiet.is_set()
        with pytest.raises(Overloaded):
            scene.desk.enter()
        scene.say(Shares(in_flight_limit=3, others_in_flight={}))
        with scene.desk.enter():
            assert scene.desk.holding == 3
    assert scene.desk.holding == 0
    assert scene.desk.quiet.is_set()


def test_alone_means_from_beginning_to_end(scene: Scene) -> None:
    scene.serve(a=BackendState.SERVING)
    with scene.lease() as only:
        scene.clock.now += 1
        assert only.alone
    with scene.lease() as first:
        scene.clock.now += 1
        with scene.lease() as second:
            scene.clock.now += 1
            assert not first.alone
            assert not second.alone
        assert not first.alone, "another was there for a while"
    scene.clock.now += 1
    with scene.lease() as later:
        assert later.alone


def test_a_drain_is_acknowledged_at_once_and_when_the_last_one_ends(scene: Scene) -> None:
    scene.serve(a=BackendState.SERVING)
    with scene.lease(), scene.lease():
        scene.serve(a=BackendState.DRAINING)
        assert scene.acks == [DrainAck(slot=3, backend="a", generation=3, in_flight=2)]
    assert scene.acks[1:] == [DrainAck(slot=3, backend="a", generation=3, in_flight=0)]
    with pytest.raises(NothingServing):
        scene.lease()


def test_pulses_are_kept_for_backends_that_exist(scene: Scene) -> None:
    scene.say(Pulse(backend="a", generation_tokens=5, read_at=99))
    scene.say(Pulse(backend="a", generation_tokens=9, read_at=100))
    assert scene.desk.pulses("a").advancing_since(98, now=100, fresh_s=6)
    scene.serve(b=BackendState.SERVING)
    assert not scene.desk.pulses("a").advancing_since(98, now=100, fresh_s=6)


def test_being_refused_by_control_changes_nothing(scene: Scene) -> None:
    before = scene.desk.snapshot
    scene.say(Refused(reason="protocol"))
    assert scene.desk.snapshot is before
