"""Model cards: read from a backend's answer, kept while they say the same, shown as one union."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.core.routing import inventory
from gateway.core.routing.backend import BackendState
from gateway.core.routing.inventory import InventoryUnreadable, parse_models, renewed, union, unreported
from gateway.core.routing.snapshot import BackendView, ModelCard, PoolView, Snapshot

DATA = Path(__file__).parents[3] / "data"


def body(*cards: object) -> bytes:
    return json.dumps({"object": "list", "data": list(cards)}).encode()


def card(name: str, **more: object) -> ModelCard:
    return ModelCard(id=name, raw=json.dumps({"id": name, **more}).encode())


def names(cards: tuple[ModelCard, ...]) -> list[str]:
    return [it.id for it in cards]


def test_a_real_answer_is_read_and_the_card_is_the_backends_own_text() -> None:
    lines = (DATA / "recordings" / "vllm-0.32-cpu" / "get-models.jsonl").read_text().splitlines()
    answer = "".join(json.loads(line).get("text", "") for line in lines).partition("\r\n\r\n")[2]
    (only,) = parse_models(answer.encode())
    assert only.id == "tiny"
    assert only.raw.decode() in answer
    assert json.loads(only.raw)["max_model_len"] == 2048


def test_a_real_answer_of_the_rust_server_is_read() -> None:
    assert names(parse_models((DATA / "pages" / "vllm-0.26-rust-models.json").read_bytes())) == ["q8b"]


def test_an_id_that_comes_twice_is_one_model_the_first() -> None:
    cards = parse_models(body({"id": "a", "n": 1}, {"id": "b"}, {"id": "a", "n": 2}))
    assert sorted(names(cards)) == ["a", "b"]
    assert [json.loads(it.raw).get("n") for it in cards if it.id == "a"] == [1]


def test_the_order_is_that_of_the_answer() -> None:
    assert names(parse_models(body({"id": "z"}, {"id": "a"}, {"id": "m"}))) == ["z", "a", "m"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html></html>",
        b"[]",
        b'{"data": 5}',
        b'{"data": [5]}',
        b'{"data": [{}]}',
        b'{"data": [{"id": 7}]}',
        b'{"data": [{"id": ""}]}',
        b'{"data": [{"id": "line\\nbreak"}]}',
        b'{"data": [{"id": "' + b"x" * 257 + b'"}]}',
        b'{"data": [{"id": "\xff"}]}',
        b'{"data": [{"id": "a", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        body(*[{"id": f"m{at}"} for at in range(inventory.MAX_CARDS + 1)]),
    ],
    ids=lambda answer: answer[:24],
)
def test_what_is_no_list_of_models_is_refused(answer: bytes) -> None:
    with pytest.raises(InventoryUnreadable):
        parse_models(answer)


def test_a_card_that_only_bears_new_stamps_keeps_its_text() -> None:
    old = (card("a", created=1, permission=[{"id": "p1"}], max_model_len=8),)
    assert renewed(old, (card("a", created=2, permission=[{"id": "p2"}], max_model_len=8),)) == old


def test_a_card_that_says_something_else_is_new_text() -> None:
    new = (card("a", created=2, max_model_len=16), card("b"))
    assert renewed((card("a", created=1, max_model_len=8),), new) == new


def test_the_union_takes_the_first_card_of_each_id() -> None:
    cards = union([("p", [card("a", n=1)]), ("p", [card("a", n=2), card("b")])], named={})
    assert cards == (card("a", n=1), card("b"))


def test_a_pool_that_names_its_models_shows_no_others() -> None:
    cards = union([("p", [card("a"), card("b")]), ("q", [card("c")])], named={"p": {"b"}})
    assert names(cards) == ["b", "c"]


def test_the_union_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "MAX_UNION_BYTES", 2 * len(card("a").raw))
    assert names(union([("p", [card("a"), card("b"), card("c")])], named={})) == ["a", "b"]


# --- models that nobody reports ---

SERVING, EJECTED, UNKNOWN = BackendState.SERVING, BackendState.EJECTED, BackendState.UNKNOWN


def pool_of(*backends: tuple[BackendState, tuple[str, ...]], named: tuple[str, ...] = ("m", "n")) -> Snapshot:
    views = tuple(
        BackendView(name=str(at), pool="p", url="", state=state, models=models)
        for at, (state, models) in enumerate(backends)
    )
    return Snapshot(generation=1, pools=(PoolView(name="p", models=named),), backends=views)


@pytest.mark.parametrize(
    "backends,missing",
    [
        ([(SERVING, ("m",))], ("n",)),
        ([(SERVING, ("x",)), (SERVING, ("y",))], ("m", "n")),
        ([(SERVING, ("m",)), (SERVING, ("n",))], ()),
        ([(SERVING, ("m",)), (EJECTED, ("n",))], ()),
        ([(SERVING, ("m",)), (EJECTED, ())], ("n",)),
    ],
    ids=["one of two", "neither", "shared out", "away for now", "away and never seen"],
)
def test_models_that_a_pool_names_and_nobody_reports(
    backends: list[tuple[BackendState, tuple[str, ...]]], missing: tuple[str, ...]
) -> None:
    assert unreported(pool_of(*backends)) == {"p": missing}


@pytest.mark.parametrize(
    "backends",
    [[], [(EJECTED, ("x",))], [(SERVING, ("x",)), (UNKNOWN, ())], [(SERVING, ("x",)), (SERVING, ())]],
    ids=["nobody", "none serves", "one not looked at", "one does not say"],
)
def test_what_cannot_be_told_is_left_open(backends: list[tuple[BackendState, tuple[str, ...]]]) -> None:
    assert unreported(pool_of(*backends)) == {}


def test_a_pool_that_names_no_models_misses_none() -> None:
    assert unreported(pool_of((SERVING, ("x",)), named=())) == {"p": ()}
