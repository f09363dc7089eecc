"""The admin API's keys: by the scope admin alone, each change in the audit trail, a key shown once."""

from __future__ import annotations

import json

import pytest

from gateway.admin.audit import AuditResult
from gateway.errors import ConfigError
from tests.integration.admin_stand import AdminStand, admin_stand

pytestmark = pytest.mark.asyncio


def audited(stand: AdminStand) -> list[tuple[str, AuditResult, tuple[str, ...]]]:
    return [(entry.action, entry.result, entry.details) for entry in stand.audit]


async def test_a_key_is_made_listed_and_ended() -> None:
    async with admin_stand() as stand:
        wanted = {"name": "batch", "models": ["kimi-*"], "limits": {"tokens_per_day": 5}, "expires_s": 60, "weight": 2}
        made = await stand.ask("POST", "/admin/v1/keys", body=json.dumps(wanted).encode())
        assert (made.status, made.json()["key"]) == (201, "pk-shown-once")
        assert made.json()["made"]["limits"]["tokens_per_day"] == 5
        listed = (await stand.ask("GET", "/admin/v1/keys")).json()
        assert [(it["id"], it["state"], it["weight"]) for it in listed["items"]] == [
            ("alice", "good", 1.0),
            ("k-1", "good", 2.0),
        ]
        assert "digest" not in json.dumps(listed)
        assert (await stand.ask("DELETE", "/admin/v1/keys/k-1")).json()["state"] == "revoked"
        assert (await stand.ask("GET", "/admin/v1/keys/k-1")).json()["revoked_wall"] == 1_700_000_100.0
        assert audited(stand) == [
            ("key.create", AuditResult.APPLIED, ("key k-1: added",)),
            ("key.revoke", AuditResult.APPLIED, ("key k-1: revoked",)),
        ]


@pytest.mark.parametrize("method, target", [("GET", ""), ("GET", "/alice"), ("POST", ""), ("DELETE", "/alice")])
async def test_nobody_below_admin_has_anything_to_do_with_keys(method: str, target: str) -> None:
    async with admin_stand() as stand:
        for scope in ("read", "operate"):
            answer = await stand.ask(method, f"/admin/v1/keys{target}", scope=scope, body=b"{}")
            assert (answer.status, answer.code) == (403, "not_allowed")
        assert stand.audit == []


@pytest.mark.parametrize(
    "body, param",
    [
        (b"", None),
        (b"[]", None),
        (b'{"id": "no blanks"}', "id"),
        (b'{"rate": 3}', None),
        (b'{"limits": {"rpm": 3}}', "limits"),
        (b'{"weight": "much"}', "weight"),
        (b'{"expires_s": 0}', "expires_s"),
        (b'{"scopes": ["admin"]}', "scopes[0]"),
    ],
)
async def test_what_is_no_key_is_refused_with_its_place(body: bytes, param: str | None) -> None:
    async with admin_stand() as stand:
        answer = await stand.ask("POST", "/admin/v1/keys", body=body)
        assert (answer.status, answer.json()["error"]["param"]) == (400, param), answer.body
        assert len(stand.keys.keys) == 1


async def test_what_comes_to_nothing_stands_in_the_audit_trail_too() -> None:
    async with admin_stand() as stand:
        assert (await stand.ask("DELETE", "/admin/v1/keys/nobody")).status == 404
        stand.keys.trouble = ConfigError("keys.json:1:1: not valid YAML")
        assert (await stand.ask("POST", "/admin/v1/keys", body=b"{}")).status == 422
        assert audited(stand) == [
            ("key.revoke", AuditResult.REFUSED, ("there is no key of that id",)),
            ("key.create", AuditResult.REFUSED, ("keys.json:1:1: not valid YAML",)),
        ]
