"""Dialogues with all that control decides: what backends and workers show, and what is sent, told and asked for."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from gateway.control import inbox
from gateway.control.inbox import Action, Event
from gateway.control.link import WorkerRef
from gateway.control.roster import Roster
from gateway.control.state import ControlState
from gateway.core.admission.shares import ShareBook
from gateway.core.link.messages import (
    PROTOCOL,
    BackendFailure,
    DrainAck,
    Heartbeat,
    Hello,
    NewSnapshot,
    Pulse,
    RequestRecord,
    Settled,
    Shares,
)
from gateway.core.routing.evidence import DrainAsked, HealthEvent
from gateway.core.routing.reading import EngineReading
from gateway.core.stream.summary import Ending, EngineError, Flag, Outcome, StreamSummary
from gateway.fleet import Fleet, Remembered
from gateway.settings import Pool
from gateway.telemetry.events import EVENTS, EventName
from gateway.telemetry.labels import ClosedSet
from tests.fakes.fleets import GOOD, REFUSED, SLOW, cards, pool, runtime
from tests.fakes.settled import record_of

sessions = itertools.count(1)


class Control:
    """Control without any of its hands: events go in, the actions are kept."""

    def __init__(self, *pools: Pool, remembered: tuple[Remembered, ...] = (), **given: object) -> None:
        self.now = 0.0
        fleet = Fleet(runtime(*pools, **given), generation=0, now=0.0, remembered=remembered)
        shares = ShareBook(workers=1, inherited=False, now=0.0)
        roster = Roster(models=ClosedSet(["m"]), backends=ClosedSet(["a", "b"]), shares=shares)
        self.state = ControlState(fleet, roster)

    def at(self, now: float, *events: Event) -> list[Action]:
        self.now = now
        actions = [action for event in events for action in self.state.step(event, now=now)]
        for action in actions:
            if isinstance(action, inbox.Tell):
                assert set(action.fields) == set(EVENTS[action.name].fields)
        return actions

    def health(self, now: float, name: str, *events: HealthEvent) -> list[Action]:
        return self.at(now, *(inbox.HealthNews(name, event) for event in events))

    def models(self, name: str, *ids: str, stamp: int = 0) -> list[Action]:
        news = inbox.ModelsRead(backend=name, cards=cards(*ids, stamp=stamp), version="1")
        return self.at(self.now, news)

    def worker(self, *, slot: int = 0) -> WorkerRef:
        return WorkerRef(session=next(sessions), slot=slot, pid=100 + slot, started_wall=1.0)

    def hello(self, worker: WorkerRef) -> list[Action]:
        message = Hello(protocol=PROTOCOL, slot=worker.slot, pid=worker.pid, started_wall=worker.started_wall)
        return self.at(self.now, inbox.WorkerSaid(worker, message))

    def settled(self, now: float, *records: RequestRecord, failures: tuple[BackendFailure, ...] = ()) -> list[Action]:
        return self.at(now, inbox.WorkerSaid(self.worker(), Settled(slot=0, records=[*records], failures=[*failures])))


def up(*names: str, **given: object) -> Control:
    """Control over one pool whose backends all serve model m."""
    control = Control(pool("p", *names), **given)
    for name in names:
        control.models(name, "m")
        control.health(0.1, name, GOOD)
    return control


def told(actions: list[Action]) -> list[str]:
    return [action.name.value for action in actions if isinstance(action, inbox.Tell)]


def fields(actions: list[Action], name: EventName) -> dict[str, object]:
    (found,) = [action.fields for action in actions if isinstance(action, inbox.Tell) and action.name is name]
    return dict(found)


def published(actions: list[Action]) -> list[dict[str, str]]:
    return [
        {view.name: view.state.value for view in action.snapshot.backends}
        for action in actions
        if isinstance(action, inbox.Publish)
    ]


# --- the start ---


def test_control_begins_by_watching_every_backend() -> None:
    control = Control(pool("p", "a"), pool("q", "b"), probes={"timeout_s": 0.7})
    (action,) = control.state.begin()
    assert isinstance(action, inbox.Watch)
    assert (list(action.backends), action.timeout_s) == (["a", "b"], 0.7)


def test_nothing_is_published_before_every_backend_was_looked_at() -> None:
    control = Control(pool("p", "a", "b"))
    assert published(control.health(0.1, "a", GOOD)) == []
    assert not control.state.open
    assert published(control.health(0.2, "b", REFUSED)) == [{"a": "serving", "b": "ejected"}]
    assert control.state.open


def test_a_slow_backend_holds_the_others_up_only_so_long() -> None:
    control = Control(pool("p", "a", "b"))
    control.health(0.1, "a", GOOD)
    assert published(control.at(1.0, inbox.RoundOver())) == [{"a": "serving", "b": "unknown"}]


def test_a_control_that_was_killed_offers_a_busy_backend_with_its_models_though_it_does_not_answer_probes() -> None:
    left = Remembered(name="a", url="http://127.0.0.1:8001", cards=cards("m"))
    control = Control(pool("p", "a"), remembered=(left,))
    (action,) = [it for it in control.health(2.0, "a", SLOW) if isinstance(it, inbox.Publish)]
    (view,) = action.snapshot.backends
    assert (view.state.value, view.models) == ("unknown", ("m",)), "unknown is a worker's last resort"


def test_a_worker_that_comes_early_hears_nothing_until_control_knows_something() -> None:
    control = Control(pool("p", "a"))
    assert not any(isinstance(action, inbox.SendTo) for action in control.hello(control.worker()))
    actions = control.health(0.1, "a", GOOD)
    assert published(actions) == [{"a": "serving"}]
    assert fields(actions, EventName.SNAPSHOT_PUBLISHED) == {"generation": 1, "workers": 1, "serving": 1}


def test_a_worker_that_comes_later_gets_the_snapshot_at_once() -> None:
    control = up("a")
    worker = control.worker()
    sent = [action for action in control.hello(worker) if isinstance(action, inbox.SendTo)]
    assert sent == [inbox.SendTo(worker, NewSnapshot(snapshot=control.state.fleet.snapshot()))]


# --- backends ---


def test_an_engine_that_goes_and_comes_back_is_published_both_times_and_told() -> None:
    control = up("a", "b")
    assert published(control.health(2.0, "a", REFUSED, REFUSED)) == []
    actions = control.health(3.0, "a", REFUSED)
    assert published(actions) == [{"a": "ejected", "b": "serving"}]
    assert told(actions) == ["backend.state", "snapshot.published"]
    assert inbox.CountState("a", "ejected") in actions
    assert inbox.CountProbe("a", "/health", "refused") in actions
    assert published(control.health(4.0, "a", GOOD)) == [{"a": "serving", "b": "serving"}]


def test_the_end_of_a_pool_is_told_with_the_reason_of_every_backend_and_so_is_its_return() -> None:
    control = up("a", "b")
    control.health(2.0, "a", REFUSED, REFUSED, REFUSED)
    actions = control.health(2.0, "b", REFUSED, REFUSED, REFUSED)
    reason = str(fields(actions, EventName.POOL_DOWN)["reason"])
    assert reason.startswith("none of 2 serves: a ejected: connection refused")
    assert "; b ejected: connection refused" in reason
    assert fields(control.health(5.0, "b", GOOD), EventName.POOL_SERVING) == {"pool": "p", "after_s": 3.0}


def test_models_are_told_when_they_are_news_and_published_when_they_differ() -> None:
    control = up("a")
    assert told(control.models("a", "m", stamp=5)) == []
    actions = control.models("a", "m", "lora")
    assert fields(actions, EventName.BACKEND_MODELS) == {"backend": "a", "models": ["m", "lora"], "version": "1"}
    assert len(published(actions)) == 1


def numbers(read_at: float, tokens: float | None) -> inbox.NumbersRead:
    return inbox.NumbersRead("a", EngineReading(read_at=read_at, generation_tokens=tokens))


def test_every_reading_is_a_pulse_for_all_workers_dated_by_the_asking() -> None:
    pulses = [it for it in up("a").at(9.0, numbers(8.9, 1000.0)) if isinstance(it, inbox.Broadcast)]
    assert pulses == [inbox.Broadcast(Pulse(backend="a", generation_tokens=1000.0, read_at=8.9))]


def test_a_reading_without_the_counter_is_no_pulse() -> None:
    assert not any(isinstance(it, inbox.Broadcast) for it in up("a").at(9.0, numbers(8.9, None)))


def test_a_counter_that_falls_has_the_models_read_again() -> None:
    control = up("a")
    control.at(2.0, numbers(2.0, 1000.0))
    actions = control.at(4.0, numbers(4.0, 7.0))
    assert inbox.ReadModels("a") in actions
    assert fields(actions, EventName.BACKEND_RESTARTED) == {
        "backend": "a",
        "tokens_before": 1000.0,
        "tokens_now": 7.0,
    }


def unreadable(path: str = "/metrics", detail: str = "answered 404") -> inbox.Unreadable:
    return inbox.Unreadable(backend="a", path=path, result="bad_status", detail=detail)


def test_what_cannot_be_read_is_told_once_and_once_more_when_it_can() -> None:
    control = up("a")
    actions = control.at(2.0, unreadable())
    assert fields(actions, EventName.BACKEND_READING)["problem"] == "answered 404"
    assert inbox.CountProbe("a", "/metrics", "bad_status") in actions
    assert told(control.at(4.0, unreadable())) == []
    assert fields(control.at(6.0, numbers(6.0, 1.0)), EventName.BACKEND_READING)["problem"] == ""
    assert told(control.at(8.0, numbers(8.0, 2.0))) == []


def test_what_cannot_be_read_of_a_backend_that_is_away_is_no_news() -> None:
    control = Control(pool("p", "a"))
    control.health(0.1, "a", REFUSED)
    assert told(control.at(1.0, unreadable(), unreadable("/v1/models"))) == []


def test_unreadable_numbers_are_no_longer_reported() -> None:
    control = up("a")
    control.at(2.0, numbers(2.0, 1000.0), unreadable("/v1/models"))
    report = control.state.fleet.reports(in_flight={}, requests={}, now=2.0, wall=2.0)[0]
    assert report.generation_tokens == 1000.0
    control.at(4.0, unreadable())
    report = control.state.fleet.reports(in_flight={}, requests={}, now=4.0, wall=4.0)[0]
    assert report.generation_tokens is None


# --- what workers report ---


def failure(code: str, at: float) -> BackendFailure:
    return BackendFailure(backend="a", code=code, at=at)


def test_settled_requests_are_taken_in() -> None:
    record = record_of()
    assert up("a").settled(1.0, record) == [inbox.Ingest((record,))]


def test_an_engine_whose_completions_die_is_ejected_though_it_answers_health() -> None:
    control = up("a", "b")
    actions = control.settled(2.0, failures=tuple(failure("status_500", 2.0) for _ in range(5)))
    assert published(actions) == [{"a": "ejected", "b": "serving"}]
    assert inbox.ProbeNow("a") in actions
    assert published(control.health(2.5, "a", GOOD)) == []
    assert published(control.health(4.0, "a", GOOD)) == [{"a": "serving", "b": "serving"}]


def test_a_storm_of_503_and_of_4xx_ejects_nobody() -> None:
    control = up("a")
    codes = ("status_503", "status_429", "bad_request")
    failures = tuple(failure(code, 2.0) for code in codes for _ in range(100))
    rejected = msgspec.structs.replace(record_of(outcome=Outcome.REJECTED), ending=Ending.BAD_STATUS, status=400)
    assert published(control.settled(2.0, *[rejected] * 100, failures=failures)) == []


def test_good_endings_protect_a_backend_from_a_few_bad_ones() -> None:
    control = up("a")
    records = [record_of(backend="a")] * 50
    assert (
        published(control.settled(2.0, *records, failures=tuple(failure("backend_died", 2.0) for _ in range(9)))) == []
    )


def broken_inside(**given: object) -> RequestRecord:
    summary = StreamSummary(**given)
    return msgspec.structs.replace(record_of(backend="a", outcome=Outcome.UPSTREAM_ERROR), summary=summary)


@pytest.mark.parametrize(
    "record",
    [
        broken_inside(error=EngineError(code="500", type="InternalServerError")),
        broken_inside(finish_reasons=("abort",)),
        msgspec.structs.replace(broken_inside(), summary=None),
    ],
    ids=["error event", "abort", "no summary"],
)
def test_errors_inside_answers_that_began_well_speak_against_a_backend(record: RequestRecord) -> None:
    assert published(up("a", "b").settled(2.0, *[record] * 5)) == [{"a": "ejected", "b": "serving"}]


@pytest.mark.parametrize(
    "record",
    [
        broken_inside(error=EngineError(code="400", type="BadRequestError")),
        broken_inside(flags=(Flag.TAP_DISABLED,)),
        msgspec.structs.replace(broken_inside(), ending=Ending.EOF),
        msgspec.structs.replace(broken_inside(), backend=""),
        msgspec.structs.replace(broken_inside(), outcome=Outcome.CLIENT_GONE),
    ],
    ids=["blames the request", "our tap failed", "reported by the worker itself", "no backend", "client left"],
)
def test_other_bad_endings_do_not(record: RequestRecord) -> None:
    assert published(up("a", "b").settled(2.0, *[record] * 100)) == []


def test_a_batch_without_records_stores_nothing() -> None:
    assert not any(isinstance(it, inbox.Ingest) for it in up("a").settled(1.0, failures=(failure("bad_request", 1.0),)))


# --- workers ---


def beat(**given: object) -> Heartbeat:
    values = {"slot": 0, "sent_at": 0.0, "generation": 1, "in_flight": {}, "holding": 0, "connections": 0}
    return Heartbeat(**values | {"outcomes": {}} | given)


def test_shares_follow_what_workers_hold_and_are_sent_only_when_they_change() -> None:
    control = up("a", limits={"in_flight": 100})
    one, two = control.worker(), control.worker(slot=1)
    control.hello(one)
    control.hello(two)
    control.at(0.2, inbox.WorkerSaid(one, beat(in_flight={"a": 20}, holding=20, share=20)))
    assert control.at(0.2, inbox.WorkerSaid(two, beat())) == [
        inbox.SendTo(one, Shares(in_flight_limit=60, others_in_flight={})),
        inbox.SendTo(two, Shares(in_flight_limit=40, others_in_flight={"a": 20})),
    ]
    assert control.at(0.3, inbox.Ticked()) == []
    control.at(0.4, inbox.WorkerSaid(one, beat(in_flight={"a": 60}, holding=60, share=60)))
    control.at(0.4, inbox.WorkerSaid(two, beat(share=40)))
    assert control.at(0.5, inbox.Ticked()) == [
        inbox.SendTo(two, Shares(in_flight_limit=20, others_in_flight={"a": 60})),
    ]
    control.at(0.6, inbox.WorkerSaid(two, beat(share=20)))
    assert control.at(0.7, inbox.Ticked()) == [inbox.SendTo(one, Shares(in_flight_limit=80, others_in_flight={}))]


def test_a_worker_that_is_killed_takes_what_it_held_and_leaves_its_counters() -> None:
    control = up("a")
    one, two = control.worker(), control.worker(slot=1)
    control.hello(one)
    control.hello(two)
    control.at(0.2, inbox.WorkerSaid(one, beat(in_flight={"a": 3}, holding=3, outcomes={"chat|m|a|ok|200": 7})))
    control.at(0.3, inbox.WorkerSaid(two, beat()))
    actions = control.at(0.4, inbox.WorkerLeft(one))
    assert fields(actions, EventName.WORKER_GONE) == {"slot": 0, "pid": 100, "in_flight": 3}
    assert control.state.roster.in_flight() == {}
    assert sum(control.state.roster.totals.values()) == 7
    (share,) = control.at(0.5, inbox.Ticked())
    assert isinstance(share, inbox.SendTo)
    assert isinstance(share.message, Shares)
    assert (share.worker, share.message.others_in_flight) == (two, {})
    assert control.at(0.6, inbox.WorkerLeft(one)) == []


def test_a_silent_worker_and_lost_records_are_told() -> None:
    control = up("a")
    worker = control.worker()
    control.hello(worker)
    actions = control.at(1.0, inbox.WorkerSaid(worker, beat(dropped=12)))
    assert fields(actions, EventName.RECORDS_DROPPED) == {"slot": 0, "pid": 100, "count": 12}
    assert fields(control.at(4.0, inbox.Ticked()), EventName.WORKER_SILENT)["silent_s"] == 3.0


def test_a_drain_is_published_and_acknowledgements_are_kept() -> None:
    control = up("a", "b")
    worker = control.worker()
    control.hello(worker)
    assert published(control.health(1.0, "a", DrainAsked(why="asked"))) == [{"a": "draining", "b": "serving"}]
    generation = control.state.fleet.snapshot().generation
    assert control.state.roster.undrained("a", generation) == (worker,)
    ack = DrainAck(slot=0, backend="a", generation=generation, in_flight=0)
    assert control.at(1.1, inbox.WorkerSaid(worker, ack)) == []
    assert control.state.roster.undrained("a", generation) == ()


# --- configuration ---


def test_a_reload_watches_what_is_new_and_publishes_at_once_what_left() -> None:
    control = up("a", "b")
    actions = control.at(2.0, inbox.ConfigRead(runtime(pool("p", "b", "c"))))
    (watch,) = [action for action in actions if isinstance(action, inbox.Watch)]
    assert list(watch.backends) == ["b", "c"]
    assert published(actions) == [{"b": "serving", "c": "unknown"}]


def test_news_of_a_backend_that_was_just_removed_changes_nothing() -> None:
    control = up("a", "b")
    control.at(2.0, inbox.ConfigRead(runtime(pool("p", "b"))))
    assert published(control.health(2.1, "a", GOOD)) == []
    assert published(control.settled(2.2, failures=tuple(failure("backend_died", 2.2) for _ in range(9)))) == []
