"""The admin API's LoRA adapters: orders name an adapter and nothing else, and are answered by what backends said."""

from __future__ import annotations

import pytest

from gateway.admin.audit import AuditResult
from gateway.core.routing.adapters import AdapterResult
from gateway.errors import NotFound
from tests.integration.admin_stand import AdminStand, admin_stand

pytestmark = pytest.mark.asyncio

LOAD, UNLOAD = "/admin/v1/lora/kimi/poet/load", "/admin/v1/lora/kimi/poet/unload"


def audited(stand: AdminStand) -> list[tuple[str, AuditResult, tuple[str, ...]]]:
    return [(entry.action, entry.result, entry.details) for entry in stand.audit]


async def test_adapters_are_listed_with_every_field() -> None:
    async with admin_stand() as stand:
        answer = await stand.ask("GET", "/admin/v1/lora", scope="read")
        assert answer.json() == {
            "items": [
                {
                    "pool": "kimi",
                    "name": "poet",
                    "path": "/adapters/poet",
                    "wanted": True,
                    "backends": [
                        {
                            "backend": "a",
                            "state": "serving",
                            "loaded": True,
                            "path": "/adapters/poet",
                            "result": None,
                            "detail": "",
                            "tried_wall": None,
                            "retry_in_s": None,
                        }
                    ],
                }
            ],
            "next": None,
        }


@pytest.mark.parametrize(
    "results, status",
    [
        ((AdapterResult.LOADED, AdapterResult.ALREADY_LOADED), 200),
        ((AdapterResult.LOADED, AdapterResult.REFUSED), 207),
        ((AdapterResult.SUPERSEDED, AdapterResult.RELOADED), 207),
        ((AdapterResult.UNREACHABLE, AdapterResult.REFUSED), 502),
    ],
)
async def test_the_status_says_whether_all_some_or_none_did_it(results: tuple[AdapterResult, ...], status: int) -> None:
    async with admin_stand() as stand:
        stand.adapters.results = dict(zip("ab", results, strict=True))
        answer = await stand.ask("POST", LOAD, scope="operate")
        assert (answer.status, answer.json()["complete"]) == (status, status == 200)
        assert [it["result"] for it in answer.json()["backends"]] == list(results)
        assert audited(stand) == [("lora.load", AuditResult.APPLIED, ("pool kimi: load of poet",))]


async def test_orders_are_given_by_name_however_it_is_spelled() -> None:
    async with admin_stand() as stand:
        for target in (LOAD, f"{LOAD}?reload=true", UNLOAD, "/admin/v1/lora/kimi/org%2Fpoet%20%25/load"):
            assert (await stand.ask("POST", target, scope="operate")).status == 200
        assert (await stand.ask("POST", UNLOAD, scope="operate", body=b"{}")).status == 200
        assert stand.adapters.orders == [
            ("load", "kimi", "poet"),
            ("reload", "kimi", "poet"),
            ("unload", "kimi", "poet"),
            ("load", "kimi", "org/poet %"),
            ("unload", "kimi", "poet"),
        ]


@pytest.mark.parametrize("target", [LOAD, UNLOAD])
async def test_nobody_below_operate_gives_orders(target: str) -> None:
    async with admin_stand() as stand:
        assert (await stand.ask("POST", target, scope="read")).status == 403
        assert (await stand.ask("POST", target, scope="")).status == 401
        assert (stand.adapters.orders, stand.audit) == ([], [])


@pytest.mark.parametrize(
    "target, body",
    [
        (LOAD, b'{"lora_path": "/etc"}'),
        (UNLOAD, b'{"lora_name": "poet"}'),
        (LOAD, b"[]"),
        (f"{LOAD}?lora_path=/etc", b""),
        (f"{LOAD}?path=/etc&reload=true", b""),
        (f"{LOAD}?reload=perhaps", b""),
        (f"{UNLOAD}?reload=true", b""),
    ],
)
async def test_whoever_names_a_path_is_refused_and_nothing_is_done(target: str, body: bytes) -> None:
    async with admin_stand() as stand:
        answer = await stand.ask("POST", target, scope="operate", body=body)
        assert (answer.status, answer.code) == (400, "bad_request")
        assert stand.adapters.orders == []


async def test_what_comes_to_nothing_stands_in_the_audit_trail_too() -> None:
    async with admin_stand() as stand:
        stand.adapters.trouble = NotFound("there is no pool x", param="pool")
        answer = await stand.ask("POST", LOAD, scope="operate")
        assert (answer.status, answer.json()["error"]["param"]) == (404, "pool")
        assert audited(stand) == [
            ("lora.load", AuditResult.REFUSED, ("adapter poet of pool kimi: there is no pool x",))
        ]
