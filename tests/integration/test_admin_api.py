"""The admin API over a real socket: every endpoint, every answer held against its own description."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import uvloop

from gateway.admin.audit import AuditResult
from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Outcome
from gateway.errors import OperatorError
from gateway.ports import BackendReport, ConfigVerdict, StatusReport
from tests.fakes.operators import store_trouble
from tests.fakes.settled import record_of
from tests.integration.admin_stand import METRICS, AdminStand, admin_stand
from tests.integration.json_schema import complaints
from tests.integration.raw_http import Answer

FAULTS = ("gateway.yaml:3:5 pools[0].name: missing", 'gateway.yaml:9:1 poools: unknown key; did you mean "pools"?')


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[AdminStand]:
    async with admin_stand() as made:
        yield made


async def described(stand: AdminStand) -> dict[str, Any]:
    return (await stand.ask("GET", "/admin/v1/openapi.json")).json()


def answer_schema(document: dict[str, Any], template: str, method: str, *, status: int) -> dict[str, Any]:
    responses = document["paths"][template][method.lower()]["responses"]
    return responses.get(str(status), responses["default"])["content"]["application/json"]["schema"]


@pytest.mark.asyncio
async def test_the_status_names_every_field_of_its_report(stand: AdminStand) -> None:
    answer = await stand.ask("GET", "/admin/v1/status", scope="read")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert msgspec.convert(answer.json(), StatusReport) == stand.operations.status()


@pytest.mark.asyncio
async def test_backends_are_listed_and_shown(stand: AdminStand) -> None:
    listed = (await stand.ask("GET", "/admin/v1/backends", scope="read")).json()
    assert listed["next"] is None
    assert tuple(msgspec.convert(item, BackendReport) for item in listed["items"]) == stand.operations.backends()
    shown = (await stand.ask("GET", "/admin/v1/backends/b", scope="read")).json()
    assert shown == listed["items"][1]


@pytest.mark.asyncio
async def test_an_unknown_backend_is_not_found(stand: AdminStand) -> None:
    answer = await stand.ask("GET", "/admin/v1/backends/zz")
    assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.asyncio
async def test_quarantined_requests_are_listed_and_let_in_again_which_is_noted(stand: AdminStand) -> None:
    listed = (await stand.ask("GET", "/admin/v1/quarantine", scope="read")).json()
    (item,) = listed["items"]
    assert (item["fingerprint"], item["backends"], listed["next"]) == ("00ff00ff00ff00ff", ["a", "b"], None)
    assert item["until_wall"] - item["first_wall"] == 700
    path = f"/admin/v1/quarantine/{item['fingerprint']}"
    assert (await stand.ask("DELETE", path, scope="read")).status == 403
    released = await stand.ask("DELETE", path, scope="operate")
    assert (released.status, released.json()) == (200, {"fingerprint": item["fingerprint"]})
    assert (await stand.ask("GET", "/admin/v1/quarantine")).json()["items"] == []
    gone = await stand.ask("DELETE", path, scope="operate")
    assert (gone.status, gone.code) == (404, "not_found")
    (entry,) = stand.audit
    assert (entry.action, entry.result, entry.details) == (
        "quarantine.release",
        AuditResult.APPLIED,
        (item["fingerprint"],),
    )


@pytest.mark.asyncio
async def test_requests_come_in_pages_that_add_up(stand: AdminStand) -> None:
    stand.history.add([record_of(f"r{at}") for at in range(5)])
    seen: list[str] = []
    following = 0
    for _ in range(3):
        page = (await stand.ask("GET", f"/admin/v1/requests?limit=2&before={following}", scope="read")).json()
        seen += [item["record"]["request_id"] for item in page["items"]]
        following = page["next"]
    assert seen == ["r4", "r3", "r2", "r1", "r0"]
    assert following is None


@pytest.mark.asyncio
async def test_a_last_page_that_is_full_says_that_it_is_the_last(stand: AdminStand) -> None:
    stand.history.add([record_of("r1"), record_of("r2")])
    page = (await stand.ask("GET", "/admin/v1/requests?limit=2")).json()
    assert (len(page["items"]), page["next"]) == (2, None)


@pytest.mark.parametrize(
    "query,expected",
    [
        ("model=other", ["r2"]),
        ("backend=b", ["r3"]),
        ("outcome=client_gone", ["r3"]),
        ("outcome=rejected", []),
        ("slowest=true", ["r2", "r1", "r3"]),
        ("slowest=true&limit=1", ["r2"]),
    ],
)
@pytest.mark.asyncio
async def test_requests_are_filtered(stand: AdminStand, query: str, expected: list[str]) -> None:
    stand.history.add(
        [
            record_of("r1", total_s=2.0),
            record_of("r2", model="other", total_s=3.0),
            record_of("r3", backend="b", outcome=Outcome.CLIENT_GONE, total_s=1.0),
        ]
    )
    page = (await stand.ask("GET", f"/admin/v1/requests?{query}")).json()
    assert [item["record"]["request_id"] for item in page["items"]] == expected


@pytest.mark.asyncio
async def test_one_request_is_shown_whole(stand: AdminStand) -> None:
    stand.history.add([record_of("r/1")])
    found = (await stand.ask("GET", "/admin/v1/requests/r%2F1", scope="read")).json()
    assert found["id"] == 1
    assert set(found["record"]) == set(RequestRecord.__struct_fields__)
    assert msgspec.convert(found["record"], RequestRecord) == record_of("r/1")
    missing = await stand.ask("GET", "/admin/v1/requests/other")
    assert (missing.status, missing.code) == (404, "not_found")


@pytest.mark.parametrize("target", ["/admin/v1/requests", "/admin/v1/requests/r"])
@pytest.mark.asyncio
async def test_a_store_in_trouble_is_503_with_its_reason(stand: AdminStand, target: str) -> None:
    stand.history.trouble = store_trouble()
    answer = await stand.ask("GET", target)
    assert (answer.status, answer.code) == (503, "store_unusable")
    assert "free space" in answer.json()["error"]["message"]


@pytest.mark.parametrize("query,param", [("limit=0", "limit"), ("outcome=fine", "outcome")])
@pytest.mark.asyncio
async def test_a_bad_parameter_is_named(stand: AdminStand, query: str, param: str) -> None:
    answer = await stand.ask("GET", f"/admin/v1/requests?{query}")
    assert (answer.status, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.asyncio
async def test_a_reload_is_applied_and_stands_in_the_audit_trail(stand: AdminStand) -> None:
    answer = await stand.ask("POST", "/admin/v1/config/reload")
    assert answer.status == 200
    assert msgspec.convert(answer.json(), ConfigVerdict) == stand.operations.verdict
    assert stand.operations.reloads == 1
    entry = stand.audit[0]
    assert (entry.actor, entry.peer, entry.action) == ("admin-token", "127.0.0.1", "config.reload")
    assert (entry.result, entry.details) == (AuditResult.APPLIED, ("pool kimi: backend c is new",))


@pytest.mark.parametrize("target", ["/admin/v1/config/reload", "/admin/v1/config/check"])
@pytest.mark.asyncio
async def test_a_bad_configuration_is_422_with_every_fault(stand: AdminStand, target: str) -> None:
    stand.operations.verdict = ConfigVerdict(applied=False, faults=FAULTS)
    answer = await stand.ask("POST", target, body=b"poools: []")
    assert (answer.status, answer.code) == (422, "config_error")
    assert answer.headers["x-gateway-error"] == "1"
    assert answer.json()["faults"] == list(FAULTS)
    assert answer.json()["applied"] is False
    assert answer.json()["error"]["message"] == "\n".join(FAULTS)
    if target.endswith("reload"):
        assert (stand.audit[0].result, stand.audit[0].details) == (AuditResult.REFUSED, FAULTS)
    else:
        assert stand.audit == []


@pytest.mark.parametrize("body,text", [(b"", None), ("pools: [ä]".encode(), "pools: [ä]")])
@pytest.mark.asyncio
async def test_a_check_takes_a_text_or_the_file(stand: AdminStand, body: bytes, text: str | None) -> None:
    answer = await stand.ask("POST", "/admin/v1/config/check", scope="read", body=body)
    assert answer.status == 200
    assert stand.operations.checked == [text]
    assert stand.operations.reloads == 0


@pytest.mark.asyncio
async def test_a_reload_that_fails_is_told_and_recorded(stand: AdminStand) -> None:
    stand.operations.error = OperatorError("gateway.yaml: No such file or directory")
    answer = await stand.ask("POST", "/admin/v1/config/reload")
    assert (answer.status, answer.code) == (422, "operator_error")
    assert (stand.audit[0].result, stand.audit[0].details) == (
        AuditResult.FAILED,
        ("gateway.yaml: No such file or directory",),
    )


@pytest.mark.asyncio
async def test_a_defect_is_500_without_a_word_of_it_and_told_to_the_log(stand: AdminStand) -> None:
    stand.operations.error = ValueError("secret detail")
    for method, target in (("GET", "/admin/v1/status"), ("POST", "/admin/v1/config/reload")):
        answer = await stand.ask(method, target)
        assert (answer.status, answer.code) == (500, "gateway_fault")
        assert b"secret" not in answer.body
    assert stand.faults == [stand.operations.error] * 2
    assert stand.audit[0].details == ("ValueError",)
    stand.faults.clear()


@pytest.mark.asyncio
async def test_metrics_and_health_are_open(stand: AdminStand) -> None:
    metrics = await stand.ask("GET", "/metrics", scope="")
    assert (metrics.status, metrics.body) == (200, METRICS)
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    health = await stand.ask("GET", "/health", scope="")
    assert (health.status, health.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("target", ["/health", "/metrics", "/admin/v1/status"])
@pytest.mark.asyncio
async def test_head_is_answered_like_get_without_a_body(stand: AdminStand, target: str) -> None:
    answer = await stand.ask("HEAD", target)
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize("target", ["/", "/admin", "/admin/v1", "/admin/v1/gpu", "/admin/v1/status/", "/metrics/x"])
@pytest.mark.asyncio
async def test_an_unknown_path_is_404_in_the_one_shape(stand: AdminStand, target: str) -> None:
    answer = await stand.ask("GET", target)
    assert (answer.status, answer.code) == (404, "unknown_endpoint")
    assert answer.headers["x-gateway-error"] == "1"


@pytest.mark.parametrize(
    "method,target,allowed",
    [
        ("POST", "/admin/v1/status", "GET, HEAD"),
        ("DELETE", "/admin/v1/backends/a", "GET, HEAD"),
        ("GET", "/admin/v1/config/reload", "POST"),
        ("HEAD", "/admin/v1/events", "GET"),
    ],
)
@pytest.mark.asyncio
async def test_a_wrong_verb_is_405_in_the_one_shape_with_the_right_ones(
    stand: AdminStand, method: str, target: str, allowed: str
) -> None:
    answer = await stand.ask(method, target)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)
    if method != "HEAD":
        assert answer.code == "method_not_allowed"


def good(operation: dict[str, Any]) -> dict[str, Any]:
    """What is said of the answer that means success."""
    found: dict[str, Any] = next(it for status, it in operation["responses"].items() if status.startswith("2"))
    return found


async def answers_of(stand: AdminStand) -> list[tuple[str, str, Answer]]:
    """Path template, verb and answer: every JSON answer that the API gives, and errors of each kind."""
    stand.history.add([record_of("r1"), msgspec.structs.replace(record_of("r2"), summary=None)])
    good = [
        ("/health", "GET", "/health"),
        ("/admin/v1/status", "GET", "/admin/v1/status"),
        ("/admin/v1/backends", "GET", "/admin/v1/backends"),
        ("/admin/v1/backends/{name}", "GET", "/admin/v1/backends/a"),
        ("/admin/v1/quarantine", "GET", "/admin/v1/quarantine"),
        ("/admin/v1/quarantine/{fingerprint}", "DELETE", "/admin/v1/quarantine/00ff00ff00ff00ff"),
        ("/admin/v1/requests", "GET", "/admin/v1/requests?limit=1"),
        ("/admin/v1/requests/{id}", "GET", "/admin/v1/requests/r1"),
        ("/admin/v1/requests/{id}", "GET", "/admin/v1/requests/r2"),
        ("/admin/v1/config/reload", "POST", "/admin/v1/config/reload"),
        ("/admin/v1/config/check", "POST", "/admin/v1/config/check"),
        ("/admin/v1/backends/{name}", "GET", "/admin/v1/backends/missing"),
        ("/admin/v1/requests", "GET", "/admin/v1/requests?limit=x"),
        ("/admin/v1/lora", "GET", "/admin/v1/lora"),
        ("/admin/v1/lora/{pool}/{name}/load", "POST", "/admin/v1/lora/kimi/poet/load"),
        ("/admin/v1/lora/{pool}/{name}/unload", "POST", "/admin/v1/lora/kimi/poet/unload"),
        ("/admin/v1/keys", "GET", "/admin/v1/keys"),
        ("/admin/v1/keys/{id}", "GET", "/admin/v1/keys/alice"),
        ("/admin/v1/keys/{id}", "DELETE", "/admin/v1/keys/alice"),
        ("/admin/v1/keys/{id}", "GET", "/admin/v1/keys/missing"),
    ]
    found = [(template, method, await stand.ask(method, target)) for template, method, target in good]
    found.append(("/admin/v1/keys", "POST", await stand.ask("POST", "/admin/v1/keys", body=b"{}")))
    stand.operations.verdict = ConfigVerdict(applied=False, faults=FAULTS)
    found += [
        ("/admin/v1/config/reload", "POST", await stand.ask("POST", "/admin/v1/config/reload")),
        ("/admin/v1/status", "GET", await stand.ask("GET", "/admin/v1/status", scope="")),
    ]
    return found


@pytest.mark.asyncio
async def test_every_answer_is_as_its_description_says(stand: AdminStand) -> None:
    document = await described(stand)
    answers = await answers_of(stand)
    for template, method, answer in answers:
        schema = answer_schema(document, template, method, status=answer.status)
        assert complaints(answer.json(), schema, document) == [], (template, method, answer.status)
    json_operations = {
        (template, method.upper())
        for template, verbs in document["paths"].items()
        for method, operation in verbs.items()
        if "schema" in next(iter(good(operation)["content"].values()))
    }
    assert json_operations == {(template, method) for template, method, answer in answers if answer.status < 300}


@pytest.mark.asyncio
async def test_the_check_of_answers_finds_what_is_wrong(stand: AdminStand) -> None:
    document = await described(stand)
    answer = (await stand.ask("GET", "/admin/v1/backends/a")).json()
    schema = answer_schema(document, "/admin/v1/backends/{name}", "GET", status=200)
    assert complaints(answer, schema, document) == []
    wrong = [
        (answer | {"in_flight": "2"}, "$.in_flight: '2' is no integer"),
        (answer | {"state": "fine"}, "$.state: 'fine' is none of"),
        (answer | {"models": [1]}, "$.models[0]: 1 is no string"),
        (answer | {"surprise": 1}, "$.surprise: not described"),
        ({name: value for name, value in answer.items() if name != "url"}, "$.url: missing"),
    ]
    for value, expected in wrong:
        assert [complaint[: len(expected)] for complaint in complaints(value, schema, document)] == [expected]


@pytest.mark.asyncio
async def test_the_same_answers_come_over_a_unix_socket(tmp_path: Path) -> None:
    async with admin_stand(unix=tmp_path / "admin.sock") as stand:
        assert (await stand.ask("GET", "/admin/v1/status")).status == 200
        assert (await stand.ask("GET", "/admin/v1/status", scope="wrong")).status == 401
        await stand.ask("POST", "/admin/v1/config/reload")
        assert stand.audit[0].peer == "unix"


@pytest.mark.uvloop
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_same_answers_come_on_uvloop(tmp_path: Path, kind: str) -> None:
    async def talk() -> None:
        async with admin_stand(unix=tmp_path / "admin.sock" if kind == "unix" else None) as stand:
            assert (await stand.ask("GET", "/admin/v1/status")).status == 200
            assert (await stand.ask("POST", "/admin/v1/config/check", body=b"x" * 200_000)).status == 200

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())
