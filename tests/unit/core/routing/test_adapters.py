"""What engines say to orders about LoRA adapters, what is wanted where, and when a backend is asked again."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from gateway.core.routing.adapters import (
    DONE,
    FIRST_RETRY_S,
    KEY_REFUSED,
    MAX_RETRY_S,
    NO_ROUTE,
    Adapter,
    AdapterBook,
    AdapterResult,
    AdapterTold,
    summary_of,
    verdict,
)
from gateway.core.routing.backend import BackendState
from gateway.core.routing.inventory import without
from gateway.core.routing.snapshot import ModelCard

POET = Adapter(name="poet", path="/adapters/poet")
STARTED = Adapter(name="poet", path="/adapters/poet", load=True)


def card(name: str, root: str | None = None) -> ModelCard:
    return ModelCard(id=name, raw=json.dumps({"id": name, "root": root}).encode())


BARE = (card("tiny"),)
LOADED = (card("tiny"), card("poet", "/adapters/poet"))
ELSEWHERE = (card("tiny"), card("poet", "/old/poet"))


def error(message: str, kind: str = "NotFoundError") -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": 0}}).encode()


@pytest.mark.parametrize(
    "status, body, phrase",
    [
        (200, b"Success: LoRA adapter 'poet' added successfully.", ""),
        (401, b'{"error":"Unauthorized"}', KEY_REFUSED),
        (404, b'{"detail":"Not Found"}', NO_ROUTE),
        (405, b"", NO_ROUTE),
        (
            404,
            error("Loading lora poet failed: No adapter found for <path>"),
            "Loading lora poet failed: No adapter found for <path> (looked for at /adapters/poet on its own host)",
        ),
        (
            500,
            error("LoRA rank 32 is greater than max_lora_rank 16.", "X"),
            "LoRA rank 32 is greater than max_lora_rank 16",
        ),
        (500, error("a\nb\x1b[31m" + "c" * 500, "X"), "a b [31m" + "c" * 292),
        (500, b"Internal Server Error", "it answered 500"),
        (503, b"\xff[" * 1000, "it answered 503"),
    ],
)
def test_what_an_engine_answers_becomes_a_phrase(status: int, body: bytes, phrase: str) -> None:
    assert verdict(status, body, path="/adapters/poet") == phrase


def asked(
    book: AdapterBook, adapter: Adapter, cards: tuple[ModelCard, ...], *, now: float = 0.0, epoch: float = 1.0
) -> bool | None:
    return book.wants("p", adapter, backend="a", cards=cards, epoch=epoch, now=now)


def test_what_nobody_wants_is_asked_of_nobody_and_left_where_it_is() -> None:
    book = AdapterBook()
    assert (asked(book, POET, BARE), asked(book, POET, LOADED)) == (None, None)


def test_what_is_wanted_is_asked_of_those_that_lack_it() -> None:
    book = AdapterBook()
    assert (asked(book, STARTED, BARE), asked(book, STARTED, LOADED)) == (True, None)
    book.order("p", "poet", wanted=True)
    assert (asked(book, POET, BARE), asked(book, POET, LOADED)) == (True, None)


def test_what_an_operator_unloaded_is_taken_from_those_that_have_it_whatever_its_setting_says() -> None:
    book = AdapterBook()
    book.order("p", "poet", wanted=False)
    assert (asked(book, STARTED, LOADED), asked(book, STARTED, BARE)) == (False, None)
    assert asked(book, STARTED, BARE) is None


def told(result: AdapterResult, detail: str = "") -> AdapterTold:
    return AdapterTold(backend="a", result=result, detail=detail)


def note(book: AdapterBook, it: AdapterTold, *, now: float = 0.0, epoch: float = 1.0, path: str = POET.path) -> bool:
    return book.note("poet", it, path=path, epoch=epoch, now=now, wall=1000.0 + now)


def test_one_from_another_path_is_loaded_over_once() -> None:
    book = AdapterBook()
    assert asked(book, STARTED, ELSEWHERE) is True
    note(book, told(AdapterResult.RELOADED))
    assert asked(book, STARTED, ELSEWHERE) is None, "an engine may spell paths in its own way"
    assert asked(book, STARTED, ELSEWHERE, epoch=2.0) is True, "another process is another matter"
    moved = Adapter(name="poet", path="/new/poet", load=True)
    assert asked(book, moved, ELSEWHERE) is True, "and so is another path in the configuration"


def test_where_one_lost_what_it_had_the_others_keep_theirs_until_it_has_it_again() -> None:
    book = AdapterBook()
    lost = told(AdapterResult.REFUSED, "no")
    book.note("poet", lost, path="/new", epoch=1.0, now=0.0, wall=0.0, replaced=True)
    moved = Adapter(name="poet", path="/new", load=True)
    assert (book.may_replace(moved, "b"), book.may_replace(moved, "a")) == (False, True)
    assert book.may_replace(Adapter(name="poet", path="/newer"), "b"), "another path is another chance"
    book.note("poet", lost, path="/new", epoch=1.0, now=9.0, wall=9.0)
    assert not book.may_replace(moved, "b"), "it still lacks it"
    book.order("p", "poet", wanted=True)
    assert book.may_replace(moved, "b"), "an operator says so"
    book.note("poet", lost, path="/new", epoch=1.0, now=0.0, wall=0.0, replaced=True)
    book.note("poet", told(AdapterResult.LOADED), path="/new", epoch=1.0, now=9.0, wall=9.0)
    assert book.may_replace(moved, "b")


def test_a_refusal_is_asked_again_later_and_later_until_the_backend_is_another_or_somebody_orders() -> None:
    book, now, waits = AdapterBook(), 0.0, []
    for _ in range(12):
        note(book, told(AdapterResult.REFUSED, "no"), now=now)
        waits.append(book.on_backend("poet", "a", BackendState.SERVING, cards=BARE, now=now).retry_in_s or 0.0)
        assert asked(book, STARTED, BARE, now=now) is None
        now += waits[-1]
        assert asked(book, STARTED, BARE, now=now) is True
    assert waits[0] == FIRST_RETRY_S
    assert waits[-1] == MAX_RETRY_S
    assert all(before <= after for before, after in pairwise(waits))
    note(book, told(AdapterResult.REFUSED, "no"), now=now)
    assert asked(book, STARTED, BARE, now=now, epoch=2.0) is True
    book.order("p", "poet", wanted=True)
    assert asked(book, STARTED, BARE, now=now) is True
    note(book, told(AdapterResult.REFUSED, "no"), now=now)
    assert asked(book, STARTED, BARE, now=now + FIRST_RETRY_S) is True, "counted anew"


def test_the_same_refusal_is_no_news() -> None:
    book = AdapterBook()
    assert note(book, told(AdapterResult.REFUSED, "no"))
    assert not note(book, told(AdapterResult.REFUSED, "no"))
    assert note(book, told(AdapterResult.REFUSED, "still no"))
    assert note(book, told(AdapterResult.LOADED))


def test_what_is_configured_no_longer_is_forgotten() -> None:
    book = AdapterBook()
    book.order("p", "poet", wanted=True)
    book.order("q", "poet", wanted=True)
    note(book, told(AdapterResult.REFUSED, "no"))
    assert not book.keep({"p": ["poet"], "q": ["poet"]}, ["a"])
    assert book.keep({"p": ["poet"], "q": []}, ["a"])
    assert book.orders == {"p": {"poet": True}}
    assert book.keep({"p": ["other"]}, ["a"])
    assert book.orders == {}
    assert book.on_backend("poet", "a", BackendState.SERVING, cards=BARE, now=0.0).result is None


def test_what_is_known_at_a_backend() -> None:
    book = AdapterBook()
    note(book, told(AdapterResult.REFUSED, "no"), now=5.0)
    seen = book.on_backend("poet", "a", BackendState.SERVING, cards=ELSEWHERE, now=5.5)
    assert (seen.loaded, seen.path, seen.result, seen.detail) == (True, "/old/poet", AdapterResult.REFUSED, "no")
    assert (seen.tried_wall, seen.retry_in_s) == (1005.0, 1.5)
    odd = (ModelCard(id="poet", raw=b'{"id":"poet","root":5}'),)
    assert book.on_backend("poet", "a", BackendState.SERVING, cards=odd, now=5.5).path == ""


def test_a_summary_says_how_many_and_why_not_the_others() -> None:
    good, bad = told(AdapterResult.LOADED), AdapterTold(backend="b", result=AdapterResult.REFUSED, detail="no")
    assert summary_of("poet", [good], wanted=True) == "poet is loaded at all 1 backend of the pool"
    assert summary_of("poet", [good, bad], wanted=True) == (
        "poet is loaded at 1 of 2 backends: b refused: no; the others get it as soon as they can"
    )
    assert summary_of("poet", [bad], wanted=False).endswith("the others lose it as soon as they can")
    assert {it for it in AdapterResult if it not in DONE} == {
        AdapterResult.REFUSED,
        AdapterResult.UNREACHABLE,
        AdapterResult.SUPERSEDED,
        AdapterResult.NOT_ASKED,
    }


@pytest.mark.parametrize("wanted", [None, True, False])
def test_a_model_of_the_backend_that_has_the_adapters_name_is_never_asked_away_nor_taken_for_it(
    *, wanted: bool | None
) -> None:
    model = ModelCard(id="poet", raw=b'{"id": "poet", "root": "/adapters/poet", "parent": null}')
    book = AdapterBook()
    if wanted is not None:
        book.order("p", "poet", wanted=wanted)
    asked = book.wants("p", POET, backend="a", cards=(model,), epoch=0.0, now=1.0)
    assert asked is (True if wanted else None), "that it cannot be loaded is told; nothing else happens"
    assert not book.on_backend("poet", "a", BackendState.SERVING, cards=(model,), now=1.0).loaded
    assert without((model, *LOADED), {"poet"}) == (model, card("tiny"))
