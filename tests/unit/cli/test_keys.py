"""`pacekeeper keys`: what is asked of the gateway, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from gateway.core.admission.keys import KeyDefaults, KeyLimits, KeyScope
from gateway.ports import KeyReport
from tests.fakes.admin_server import FakeGateway

NOW = 1_700_000_000.0


def report(key_id: str, state: str = "good", **given: object) -> KeyReport:
    values = {
        "id": key_id,
        "name": f"name of {key_id}",
        "state": state,
        "scopes": tuple(KeyScope),
        "models": ("kimi-*", "tiny"),
        "limits": KeyLimits(),
        "priority_min": 0,
        "priority_max": 100,
        "weight": 1.0,
        "defaults": KeyDefaults(),
        "cache_salt": False,
        "created_wall": NOW - 7200,
        "expires_wall": None,
        "revoked_wall": None,
    }
    return msgspec.convert(values | given, KeyReport, strict=False)


def test_a_key_that_is_made_is_printed_alone(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    gateway.raw = 201, msgspec.json.encode({"key": "pk-new", "made": report("a")})
    assert pacekeeper("keys", "create", "alice", "--rpm", "60", "--weight", "2", "--model", "tiny") == "pk-new\n"
    asked = json.loads(gateway.bodies[-1])
    assert (asked["name"], asked["weight"], asked["models"]) == ("alice", 2.0, ["tiny"])
    assert asked["limits"] == {
        "concurrency": None,
        "requests_per_minute": 60,
        "tokens_per_minute": None,
        "tokens_per_day": None,
        "queue_share": 1.0,
    }
    assert asked["scopes"] == ["inference", "usage"]
    assert asked["expires_s"] is None
    made = json.loads(pacekeeper("keys", "create", "alice", "--json", "--scope", "usage", "--expires-days", "1"))
    assert made["key"] == "pk-new"
    asked = json.loads(gateway.bodies[-1])
    assert (asked["scopes"], asked["expires_s"]) == (["usage"], 86_400.0)


def test_keys_are_listed_with_their_limits(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    limits = KeyLimits(
        concurrency=4, requests_per_minute=60, tokens_per_minute=5000, tokens_per_day=100_000, queue_share=0.5
    )
    items = [report("alice", limits=limits, weight=0.5), report("bob", "revoked")]
    gateway.raw = 200, msgspec.json.encode({"items": items, "next": None})
    head, alice, bob = (line.split() for line in pacekeeper("keys", "list").splitlines())
    assert head == ["KEY", "NAME", "STATE", "CREATED", "WEIGHT", "LIMITS", "MODELS"]
    told = "4 at once, 60 req/min, 5,000 tok/min, 100,000 tok/day, 50% of a queue"
    assert alice == f"alice name of alice good 2 h ago 0.5 {told} kimi-*, tiny".split()
    assert bob == ["bob", "name", "of", "bob", "revoked", "2", "h", "ago", "1", "none", "kimi-*,", "tiny"]
    assert [it["id"] for it in json.loads(pacekeeper("keys", "list", "--json"))["items"]] == ["alice", "bob"]


def test_one_key_is_shown_and_ended(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    gateway.raw = 200, msgspec.json.encode(report("a/b", "revoked", revoked_wall=NOW - 60, cache_salt=True))
    shown = pacekeeper("keys", "show", "a/b")
    assert shown.startswith("a/b is revoked\n")
    assert "cache salt  its own" in shown
    assert "(1 min ago)" in shown
    assert pacekeeper("keys", "revoke", "a/b") == shown
    assert [path for path, _, _ in gateway.seen] == ["/admin/v1/keys/a%2Fb"] * 2
    assert gateway.methods == ["GET", "DELETE"]
    assert json.loads(pacekeeper("keys", "revoke", "a/b", "--json"))["state"] == "revoked"


def test_a_key_that_is_not_there_is_not_found(pacekeeper: Callable[..., str]) -> None:
    assert "no such page" in pacekeeper("keys", "show", "nobody", exits=5)
    assert "no such page" in pacekeeper("keys", "revoke", "nobody", exits=5)


@pytest.mark.parametrize("given", ["a b", "-a", "x" * 65, "schlüssel"])
def test_an_id_that_is_none_is_refused_in_words(
    given: str, pacekeeper: Callable[..., str], gateway: FakeGateway
) -> None:
    said = pacekeeper("keys", "create", "some team", f"--id={given}", exits=2)
    assert "Invalid value for '--id': 1 to 64 letters, digits, dots, dashes and underscores" in " ".join(said.split())
    assert gateway.seen == []
