"""A worker's ward: who is refused, and what ends say of suspects."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.core.link.messages import Quarantine
from gateway.core.request.body import parse_body
from gateway.core.request.fingerprint import fingerprint
from gateway.core.routing.policy import PoisonPolicy
from gateway.core.routing.snapshot import Snapshot, WorkerPolicy
from gateway.core.stream.summary import Dialect, EngineError, Outcome, StreamSummary
from gateway.errors import Quarantined
from gateway.proxy.visit import KEPT_BODY_BYTES, Visit
from gateway.proxy.ward import Ward
from tests.fakes.settled import record_of

BODY = parse_body(b'{"model":"m","messages":[]}', Dialect.CHAT)
PRINT = fingerprint(BODY)


def visit(*, deaths: int = 2, size: int = 27) -> Visit:
    policy = WorkerPolicy(poison=PoisonPolicy(deaths=deaths))
    made = Visit(
        accepted=0.0,
        accepted_wall=0.0,
        snapshot=Snapshot(generation=1, pools=(), backends=(), policy=policy),
        request_id="r",
    )
    made.body, made.request_bytes = BODY, size
    return made


def ward(*suspects: str, **until: float) -> Ward:
    made = Ward(clock=lambda: 100.0, wall=lambda: 1_000_000.0)
    made.apply(Quarantine(suspects=suspects, until=until))
    return made


def test_what_is_quarantined_is_refused_until_its_time_and_told_until_when() -> None:
    with pytest.raises(Quarantined) as caught:
        ward(**{PRINT: 160.0}).check(visit())
    assert "until 1970-01-12T13:47:40Z" in caught.value.message
    assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (422, "quarantined", 60.0)
    ward(**{PRINT: 100.0}).check(visit())
    ward(**{"0" * 16: 160.0}).check(visit())
    ward(PRINT).check(visit())


def test_nothing_is_watched_while_nothing_is_suspected() -> None:
    assert not ward().watching
    assert ward(PRINT).watching
    assert ward(**{PRINT: 1.0}).watching


def ok() -> object:
    return record_of(outcome=Outcome.OK)


def test_the_good_end_of_a_suspect_is_told_and_that_of_others_is_not() -> None:
    assert ward(PRINT).verdict(visit(), record_of()) == ("", PRINT)
    assert ward(**{PRINT: 160.0}).verdict(visit(), record_of()) == ("", PRINT)
    assert ward("0" * 16).verdict(visit(), record_of()) is None
    assert ward(PRINT).verdict(visit(), record_of(outcome=Outcome.CLIENT_GONE)) is None
    unseen = visit()
    assert ward().verdict(unseen, record_of()) is None
    assert unseen.fingerprint == "", "nobody asked, so none was made"


@pytest.mark.parametrize("fatal", [True, False])
def test_an_engine_that_says_that_it_is_dead_is_told_with_who_was_there(*, fatal: bool) -> None:
    summary = StreamSummary(error=EngineError(code="500", fatal=fatal))
    record = replace(record_of(outcome=Outcome.UPSTREAM_ERROR), summary=summary)
    assert ward().verdict(visit(), record) == (("engine_dead", PRINT) if fatal else None)


def test_a_short_body_is_kept_to_the_end_and_of_a_long_one_the_fingerprint_is() -> None:
    short, long, off = visit(), visit(size=KEPT_BODY_BYTES + 1), visit(deaths=0)
    for it in (short, long, off):
        it.let_body_go()
    assert [it.body is None for it in (short, long, off)] == [False, True, True]
    assert [it.fingerprint for it in (short, long, off)] == ["", PRINT, ""]
    assert [it.known_by() for it in (short, long, off)] == [PRINT, PRINT, ""]
