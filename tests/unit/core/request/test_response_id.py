"""Ids that say whose they are, by themselves."""

from __future__ import annotations

import os

import pytest

from gateway.core.request.body import parse_body
from gateway.core.request.response_id import CHANCE_BYTES, is_response_of, named, response_id
from gateway.core.routing.endpoints import ID
from gateway.core.stream.summary import Dialect

CHANCE = bytes(range(16))
MINE = response_id("alice", chance=CHANCE)


def test_an_id_is_its_key_s_and_no_other_s() -> None:
    assert is_response_of(MINE, "alice")
    assert not any(is_response_of(MINE, other) for other in ("bob", "", "alic", "alice ", "Alice"))


def test_an_id_is_one_that_may_stand_in_a_path_and_never_the_same_twice() -> None:
    ids = {response_id("alice", chance=os.urandom(CHANCE_BYTES)) for _ in range(100)}
    assert len(ids) == 100
    assert all(ID.fullmatch(it) for it in ids)
    assert not any("alice" in it for it in ids)


@pytest.mark.parametrize(
    "thing",
    [
        "",
        "resp_",
        "resp_x",
        MINE.removeprefix("resp_"),
        MINE.upper(),
        "resp_" + MINE.removeprefix("resp_").upper(),
        MINE[:-1],
        MINE[:-2],
        MINE + "00",
        MINE + " ",
        MINE[:7] + " " + MINE[7:],
        MINE[:6] + ("0" if MINE[6] != "0" else "1") + MINE[7:],
        MINE[:-1] + ("0" if MINE[-1] != "0" else "1"),
        "resp_" + "00" * 32,
        "é" * 40,
    ],
)
def test_what_was_not_made_for_a_key_is_nobody_s(thing: str) -> None:
    assert not is_response_of(thing, "alice")


def test_the_gateway_s_id_goes_before_the_client_s() -> None:
    body = parse_body(b'{"model":"tiny","request_id":"mine","input":"x"}', Dialect.RESPONSES)
    assert bytes(named(body, MINE).fields["request_id"]) == f'"{MINE}"'.encode()
    assert bytes(body.fields["request_id"]) == b'"mine"', "and changes no other request"
