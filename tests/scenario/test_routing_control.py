"""Dialogues with control about routing: caps on ejection, deaths and their requests, curves that workers are told."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from gateway.control import inbox
from gateway.control.inbox import Action
from gateway.control.lessons import TELL_S
from gateway.core.link.messages import BackendFailure, Heartbeat, Pace, Quarantine
from gateway.core.routing.backend import ALWAYS
from gateway.core.routing.curve import OLD_S
from gateway.core.routing.evidence import DrainAsked
from gateway.core.routing.poison import CONFIRM_S
from gateway.core.routing.reading import EngineReading
from gateway.core.stream.summary import Ending, Outcome
from gateway.telemetry.events import EventName
from tests.fakes.fleets import GOOD, REFUSED, SLOW, pool, runtime
from tests.fakes.settled import record_of
from tests.scenario.test_health_control import Control, fields, published, told


def up(*names: str, routing: dict[str, object] | None = None, **given: object) -> Control:
    """Control over one pool whose backends all serve, since before anybody looked."""
    control = Control(pool("p", *names, routing=routing or {}), **given)
    for name in names:
        control.models(name, "m")
        control.health(0.1, name, GOOD)
    return control


def failures(code: str, *backends: str, at: float, fingerprint: str = "") -> tuple[BackendFailure, ...]:
    return tuple(BackendFailure(backend=name, code=code, at=at, fingerprint=fingerprint) for name in backends)


def states(control: Control) -> dict[str, str]:
    return {view.name: view.state.value for view in control.state.fleet.snapshot().backends}


# --- what failing requests may eject ---


def test_where_everything_fails_half_of_the_pool_is_ejected_and_the_rest_is_kept_and_told() -> None:
    control = up("a", "b", "c", "d")
    actions: list[Action] = []
    for name in "abcd":
        actions += control.settled(2.0, failures=failures("status_500", *name * 5, at=2.0))
    assert states(control) == {"a": "ejected", "b": "ejected", "c": "serving", "d": "serving"}
    kept = [dict(it.fields) for it in actions if isinstance(it, inbox.Tell) and it.name is EventName.BACKEND_KEPT]
    assert [it["backend"] for it in kept] == ["c", "d"]
    assert str(kept[0]["reason"]).startswith("serving although 5 of the last 5 requests failed")
    reports = control.state.fleet.reports(in_flight={}, requests={}, now=2.0, wall=2.0)
    assert [it.reason.split(" ")[0] for it in reports] == ["ejected", "ejected", "serving", "serving"]


def test_the_only_backend_is_never_ejected_for_failing_requests_and_by_its_probes_it_is() -> None:
    control = up("a")
    control.settled(2.0, failures=failures("backend_died", *"a" * 50, at=2.0))
    assert states(control) == {"a": "serving"}
    control.health(3.0, "a", REFUSED, REFUSED, REFUSED)
    assert states(control) == {"a": "ejected"}


def test_probes_eject_beyond_the_cap() -> None:
    control = up("a", "b", "c", "d", routing={"max_ejected": 0.25})
    control.settled(2.0, failures=failures("status_500", *"a" * 5, *"b" * 5, at=2.0))
    assert states(control) == {"a": "ejected", "b": "serving", "c": "serving", "d": "serving"}
    for name in "bcd":
        control.health(3.0, name, REFUSED, REFUSED, REFUSED)
    assert set(states(control).values()) == {"ejected"}


def test_a_kept_backend_is_ejected_once_another_is_back() -> None:
    control = up("a", "b")
    control.settled(2.0, failures=failures("status_500", *"a" * 5, *"b" * 5, at=2.0))
    assert states(control) == {"a": "ejected", "b": "serving"}
    control.health(4.5, "a", GOOD)
    control.settled(5.0, failures=failures("status_500", "b", at=5.0))
    assert states(control) == {"a": "serving", "b": "ejected"}


def test_storms_of_503_429_and_4xx_eject_nobody_however_long() -> None:
    control = up("a", "b")
    rejected = msgspec.structs.replace(record_of(outcome=Outcome.REJECTED), ending=Ending.BAD_STATUS, status=400)
    for second in range(60):
        storm = failures("status_503", *"ab" * 50, at=second) + failures("status_429", *"ab" * 50, at=second)
        assert published(control.settled(float(second), *[rejected] * 100, failures=storm)) == []
    assert states(control) == {"a": "serving", "b": "serving"}


# --- who is new ---


def since(control: Control) -> dict[str, float]:
    return {view.name: view.serving_since for view in control.state.fleet.snapshot().backends}


def test_at_the_gateway_s_own_start_nobody_is_new_and_whoever_comes_back_is() -> None:
    control = up("a", "b")
    assert since(control) == {"a": ALWAYS, "b": ALWAYS}
    control.health(5.0, "a", REFUSED, REFUSED, REFUSED)
    control.health(30.0, "a", GOOD)
    assert since(control) == {"a": 30.0, "b": ALWAYS}


def test_a_backend_that_is_added_by_a_reload_is_new() -> None:
    control = up("a")
    control.at(50.0, inbox.ConfigRead(runtime(pool("p", "a", "b"))))
    control.health(50.2, "b", GOOD)
    assert since(control) == {"a": ALWAYS, "b": 50.2}


def numbers(name: str, at: float, tokens: float, running: float) -> inbox.NumbersRead:
    return inbox.NumbersRead(name, EngineReading(read_at=at, generation_tokens=tokens, running=running))


def test_a_restart_that_only_the_counter_shows_makes_it_new_and_its_curve_is_forgotten() -> None:
    control = up("a", "b")
    control.at(2.0, numbers("a", 2.0, 0, 1))
    control.at(4.0, numbers("a", 4.0, 200, 1))
    assert control.state.lessons.curve("a")
    actions = control.at(6.0, numbers("a", 6.0, 10, 1))
    assert since(control)["a"] == 6.0
    assert len(published(actions)) == 1
    assert control.state.lessons.curve("a") == ()
    control.at(8.0, numbers("a", 8.0, 30, 1))
    control.at(25.9, numbers("a", 25.9, 200, 1))
    assert control.state.lessons.curve("a") == (), "a slow start says nothing of its pace"
    control.at(28.0, numbers("a", 28.0, 400, 1))
    control.at(30.0, numbers("a", 30.0, 600, 1))
    assert [it.tps for it in control.state.lessons.curve("a")] == [100.0]


# --- curves for workers ---


def heartbeat(**in_flight: int) -> Heartbeat:
    return Heartbeat(
        slot=0,
        sent_at=0.0,
        generation=1,
        in_flight=in_flight,
        holding=sum(in_flight.values()),
        connections=1,
        outcomes={},
    )


def paces(actions: Iterable[Action]) -> list[Pace]:
    return [it.message for it in actions if isinstance(it, inbox.Broadcast) and isinstance(it.message, Pace)]


def test_workers_are_told_a_curve_when_it_moved_and_not_too_often() -> None:
    control = up("a", "b", routing={"policy": "measured-rate"})
    control.at(2.0, numbers("a", 2.0, 0, 1))
    control.at(4.0, numbers("a", 4.0, 200, 1))
    (first,) = paces(control.at(4.1, inbox.Ticked()))
    assert (first.backend, [it.tps for it in first.curve]) == ("a", [100.0])
    control.at(6.0, numbers("a", 6.0, 360, 1))
    assert paces(control.at(4.0 + TELL_S, inbox.Ticked())) == []
    (second,) = paces(control.at(4.2 + TELL_S, inbox.Ticked()))
    assert [it.tps for it in second.curve] == [90.0]
    control.at(8.0, numbers("a", 8.0, 536, 1))
    assert paces(control.at(30.0, inbox.Ticked())) == [], "that was about the same"
    sent = [it.message for it in control.hello(control.worker()) if isinstance(it, inbox.SendTo)]
    assert second in sent, "a worker that comes later hears it too"


def test_where_no_pool_routes_by_them_curves_are_known_and_not_told() -> None:
    control = up("a")
    control.at(2.0, numbers("a", 2.0, 0, 1))
    control.at(4.0, numbers("a", 4.0, 200, 1))
    assert paces(control.at(9.0, inbox.Ticked())) == []
    assert control.state.lessons.curve("a")
    control.at(9.0, inbox.ConfigRead(runtime(pool("p", "a", routing={"policy": "measured-rate"}))))
    assert len(paces(control.at(9.1, inbox.Ticked()))) == 1
    control.at(9.2, inbox.ConfigRead(runtime(pool("p", "b"))))
    assert control.state.lessons.curve("a") == ()
    assert control.at(9.3, numbers("a", 9.3, 1, 1))[-1:] != []


def test_a_backend_of_which_nothing_was_learnt_for_long_is_told_as_old_again_and_again_until_it_is_measured() -> None:
    control = up("a", routing={"policy": "measured-rate"})
    control.at(2.0, numbers("a", 2.0, 0, 1))
    control.at(4.0, numbers("a", 4.0, 200, 1))
    assert [it.old for it in paces(control.at(4.1, inbox.Ticked()))] == [False]
    assert paces(control.at(4.0 + OLD_S, inbox.Ticked())) == []
    (first,) = paces(control.at(4.5 + OLD_S, inbox.Ticked()))
    assert (first.old, first.curve[0].tps) == (True, 100.0)
    assert paces(control.at(10.0 + OLD_S, inbox.Ticked())) == []
    assert [it.old for it in paces(control.at(4.5 + 2 * OLD_S, inbox.Ticked()))] == [True]
    control.at(300.0, numbers("a", 300.0, 200, 1))
    control.at(302.0, numbers("a", 302.0, 402, 1))
    assert [it.old for it in paces(control.at(302.1, inbox.Ticked()))] == [False]


def test_strangers_are_what_an_engine_runs_beyond_what_workers_hold_and_told_when_their_number_changes() -> None:
    control = up("a", routing={"policy": "measured-rate"})
    worker = control.worker()
    control.hello(worker)
    control.at(1.5, inbox.WorkerSaid(worker, heartbeat(a=2)))
    for second in range(2, 22, 2):
        control.at(second, numbers("a", second, second * 600.0, 40))
    assert [it.strangers for it in paces(control.at(22.0, inbox.Ticked()))] == [38]
    for second in range(22, 42, 2):
        control.at(second, numbers("a", second, second * 600.0, 41))
    assert paces(control.at(42.0, inbox.Ticked())) == [], "one more or less is nothing"
    for second in range(42, 62, 2):
        control.at(second, numbers("a", second, second * 600.0, 2))
    assert [it.strangers for it in paces(control.at(62.0, inbox.Ticked()))] == [0]


# --- requests that engines die of ---


def wards(actions: Iterable[Action]) -> list[Quarantine]:
    return [it.message for it in actions if isinstance(it, inbox.Broadcast) and isinstance(it.message, Quarantine)]


def lost(control: Control, at: float, backend: str, *fingerprints: str) -> list[Action]:
    return control.settled(
        at, failures=tuple(failures("backend_died", backend, at=at, fingerprint=it)[0] for it in fingerprints)
    )


def test_two_deaths_quarantine_a_request_everywhere_and_the_bystanders_that_complete_go_free() -> None:
    control = up("a", "b")
    lost(control, 10.0, "a", "poison", "one", "two")
    control.health(10.1, "a", REFUSED)
    (suspected,) = wards(control.at(10.2, inbox.Ticked()))
    assert (suspected.suspects, suspected.until) == (("poison", "one", "two"), {})
    assert wards(control.at(10.3, inbox.Ticked())) == [], "told once"
    control.settled(12.0, failures=failures("", "b", at=12.0, fingerprint="one"))
    lost(control, 20.0, "b", "poison", "three")
    actions = control.health(20.1, "b", REFUSED)
    assert fields(actions, EventName.REQUEST_QUARANTINED) == {
        "fingerprint": "poison",
        "backends": ("a", "b"),
        "for_s": 600.0,
    }
    (ward,) = wards(actions)
    assert ward.until == {"poison": 620.1}
    assert set(ward.suspects) == {"two", "three"}
    worker = control.worker(slot=1)
    sent = [it.message for it in control.hello(worker) if isinstance(it, inbox.SendTo)]
    assert ward in sent, "a worker that comes later hears it too"
    actions = control.at(620.1, inbox.Ticked())
    assert fields(actions, EventName.REQUEST_RELEASED) == {"fingerprint": "poison", "reason": "its time is over"}
    assert wards(actions)[-1] == Quarantine(suspects=(), until={})


def test_connections_that_a_busy_or_well_backend_lost_are_no_deaths() -> None:
    control = up("a", "b")
    for at in (10.0, 40.0, 70.0):
        lost(control, at, "a", "f")
        control.health(at + 0.1, "a", SLOW)
        control.health(at + 0.6, "a", GOOD)
        control.at(at + 1.0 + CONFIRM_S, inbox.Ticked())
    assert control.state.lessons.poison.quarantined == ()
    assert control.state.lessons.poison.suspects == ()


def test_an_engine_s_own_word_is_a_death_and_asks_for_a_probe() -> None:
    control = up("a", "b", poison={"deaths": 1, "quarantine_s": 60})
    actions = control.settled(10.0, failures=failures("engine_dead", "a", at=10.0, fingerprint="f"))
    assert inbox.ProbeNow("a") in actions
    assert wards(actions)[0].until == {"f": 70.0}


def test_an_operator_lets_one_in_again_and_it_is_told() -> None:
    control = up("a", "b", poison={"deaths": 1})
    control.settled(10.0, failures=failures("engine_dead", "a", at=10.0, fingerprint="f"))
    actions = control.at(11.0, inbox.QuarantineLifted("f"))
    assert told(actions) == ["request.released"]
    assert wards(actions) == [Quarantine(suspects=(), until={})]
    assert control.at(11.0, inbox.QuarantineLifted("f")) == []


@pytest.mark.parametrize("backend", ["a", "gone"])
def test_news_of_nobody_in_particular_changes_nothing(backend: str) -> None:
    control = up("a")
    control.settled(10.0, failures=failures("backend_died", backend, at=10.0))
    control.settled(10.0, failures=failures("backend_died", "gone", at=10.0, fingerprint="f"))
    control.health(10.1, "gone", REFUSED, DrainAsked(why="x"))
    assert control.state.lessons.poison.suspects == ()
    assert wards(control.at(10.2, inbox.Ticked())) == []


def test_the_switch_lets_everybody_in() -> None:
    control = up("a", "b", poison={"deaths": 1})
    control.settled(10.0, failures=failures("engine_dead", "a", at=10.0, fingerprint="f"))
    control.at(11.0, inbox.ConfigRead(runtime(pool("p", "a", "b"), poison={"deaths": 0})))
    assert wards(control.at(11.1, inbox.Ticked())) == [Quarantine(suspects=(), until={})]
