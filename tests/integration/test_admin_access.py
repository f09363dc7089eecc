"""Who gets in over a real socket: tokens, scopes, guessing, foreign pages, bodies without end."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.admin.limits import AdminLimits
from gateway.admin.listen import AdminListener
from tests.integration.admin_stand import AdminStand, admin_stand
from tests.integration.raw_http import ask, head_of, read_head

pytestmark = pytest.mark.asyncio

GUARDED = [
    ("GET", "/admin/v1/status"),
    ("GET", "/admin/v1/backends"),
    ("GET", "/admin/v1/backends/a"),
    ("GET", "/admin/v1/quarantine"),
    ("DELETE", "/admin/v1/quarantine/00ff00ff00ff00ff"),
    ("GET", "/admin/v1/requests"),
    ("GET", "/admin/v1/requests/r"),
    ("POST", "/admin/v1/config/reload"),
    ("POST", "/admin/v1/config/check"),
    ("GET", "/admin/v1/events"),
    ("GET", "/admin/v1/openapi.json"),
    ("GET", "/admin/v1/keys"),
    ("GET", "/admin/v1/keys/k"),
    ("POST", "/admin/v1/keys"),
    ("DELETE", "/admin/v1/keys/k"),
    ("GET", "/admin/v1/lora"),
    ("POST", "/admin/v1/lora/p/a/load"),
    ("POST", "/admin/v1/lora/p/a/unload"),
]


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[AdminStand]:
    async with admin_stand(AdminLimits(attempts=4, attempt_every_s=100.0, body_bytes=1000, body_s=0.2)) as made:
        yield made


async def test_every_route_but_health_and_metrics_takes_a_token(stand: AdminStand) -> None:
    for method, target in GUARDED:
        answer = await stand.ask(method, target, scope="")
        assert (answer.status, answer.code) == (401, "not_authenticated"), target
        assert answer.headers["www-authenticate"].startswith("Bearer")
    routes = {(route.method, route.resource.canonical) for route in stand.app.router.routes() if route.resource}
    open_or_head = {route for route in routes if route[0] == "HEAD" or route[1] in {"/health", "/metrics"}}
    assert len(routes - open_or_head) == len(GUARDED)
    assert stand.operations.reloads == 0


async def test_a_reload_takes_the_scope_admin(stand: AdminStand) -> None:
    for scope in ("read", "operate"):
        answer = await stand.ask("POST", "/admin/v1/config/reload", scope=scope)
        assert (answer.status, answer.code) == (403, "not_allowed")
    assert stand.operations.reloads == 0
    assert stand.audit == []


@pytest.mark.parametrize(
    "target", ["//admin/v1/status", "/admin/v1/./status", "/admin/v1/x/../status", "/%61dmin/v1/status"]
)
async def test_no_spelling_of_a_path_gets_around_the_token(stand: AdminStand, target: str) -> None:
    answer = await stand.ask("GET", target, scope="")
    assert answer.status in {401, 404}


async def test_guessing_ends_with_429_for_right_and_wrong_alike(stand: AdminStand) -> None:
    statuses = [(await stand.ask("GET", "/admin/v1/status", scope="wrong")).status for _ in range(6)]
    assert statuses == [401] * 4 + [429] * 2
    wrong = await stand.ask("GET", "/admin/v1/status", scope="wrong")
    right = await stand.ask("GET", "/admin/v1/status", scope="admin")
    assert (wrong.status, wrong.body) == (right.status, right.body)
    assert 1 <= int(right.headers["retry-after"]) <= 100
    assert (await stand.ask("GET", "/metrics", scope="")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("target", ["/admin/v1/config/reload", "/metrics"])
async def test_a_page_of_another_site_is_refused(stand: AdminStand, target: str, headers: dict[str, str]) -> None:
    method = "POST" if "reload" in target else "GET"
    answer = await stand.ask(method, target, more=headers)
    assert (answer.status, answer.code) == (403, "not_allowed")
    assert stand.operations.reloads == 0


async def test_our_own_page_is_welcome(stand: AdminStand) -> None:
    answer = await stand.ask("POST", "/admin/v1/config/reload", more={"Origin": f"http://{stand.host}"})
    assert answer.status == 200


async def test_a_request_without_a_host_is_refused(stand: AdminStand) -> None:
    sent = b"GET /admin/v1/status HTTP/1.0\r\nAuthorization: Bearer admin-secret\r\n\r\n"
    assert (await ask(*await stand.connect(), sent)).status == 403


async def test_no_answer_sets_a_cookie_or_names_the_software(stand: AdminStand) -> None:
    for target in ("/health", "/admin/v1/status", "/nothing"):
        headers = (await stand.ask("GET", target)).headers
        assert "set-cookie" not in headers
        assert headers["server"] == "pacekeeper"


async def test_a_body_over_the_limit_is_413(stand: AdminStand) -> None:
    answer = await stand.ask("POST", "/admin/v1/config/check", body=b"x" * 1001)
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert (await stand.ask("POST", "/admin/v1/config/check", body=b"x" * 1000)).status == 200


async def test_a_body_that_does_not_come_is_408(stand: AdminStand) -> None:
    head = stand.head("POST", "/admin/v1/config/check", more={"Content-Length": "10"})
    answer = await ask(*await stand.connect(), head + b"pool")
    assert (answer.status, answer.code) == (408, "body_timeout")


async def test_a_body_that_is_no_text_is_400(stand: AdminStand) -> None:
    answer = await stand.ask("POST", "/admin/v1/config/check", body=b"\xff\xfe")
    assert (answer.status, answer.code) == (400, "bad_request")
    assert stand.operations.checked == []


async def test_a_packed_body_is_bounded_by_what_it_unpacks_to(stand: AdminStand) -> None:
    body = zlib.compress(b"x" * 100_000)
    assert len(body) < 1000
    answer = await stand.ask("POST", "/admin/v1/config/check", body=body, more={"Content-Encoding": "deflate"})
    assert answer.status in {400, 413}
    assert stand.operations.checked == []


async def test_nonsense_is_answered_and_the_api_goes_on(stand: AdminStand) -> None:
    reader, writer = await stand.connect()
    writer.write(b"\x00\x01nonsense\r\n\r\n")
    assert (await read_head(reader)).status == 400
    writer.close()
    huge = head_of("GET", "/admin/v1/status", {"Host": stand.host, "Authorization": "Bearer " + "x" * 20_000})
    assert (await ask(*await stand.connect(), huge)).status in {400, 431}
    assert (await stand.ask("GET", "/admin/v1/status")).status == 200


async def test_a_connection_that_sends_no_head_in_time_is_closed() -> None:
    async with admin_stand(AdminLimits(head_s=0.05)) as stand:
        for sent in (b"", b"GET /health HT"):
            reader, writer = await stand.connect()
            writer.write(sent)
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.close()


async def test_a_connection_that_has_spoken_is_no_longer_timed() -> None:
    async with admin_stand() as stand:
        reader, writer = await stand.connect()
        writer.write(head_of("GET", "/health", {"Host": stand.host}))
        assert (await read_head(reader)).status == 200
        assert stand.listener._silent == {}
        writer.close()


async def test_a_later_head_that_drips_is_cut_off_when_the_idle_time_is_over() -> None:
    async with admin_stand(AdminLimits(idle_s=0.05)) as stand:
        reader, writer = await stand.connect()
        writer.write(head_of("GET", "/health", {"Host": stand.host}))
        head = await read_head(reader)
        await reader.readexactly(int(head.headers["content-length"]))
        writer.write(b"GET /hea")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_a_connection_too_many_is_turned_away_until_another_closes() -> None:
    async with admin_stand(AdminLimits(connections=2)) as stand:
        held = [await stand.connect(), await stand.connect()]
        for reader, writer in held:
            writer.write(head_of("GET", "/health", {"Host": stand.host}))
            assert (await read_head(reader)).status == 200
        reader, writer = await stand.connect()
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        held[0][1].close()
        async with asyncio.timeout(20):
            while True:
                try:
                    answer = await stand.ask("GET", "/health")
                except (ConnectionError, asyncio.IncompleteReadError):
                    continue  # not yet noticed
                break
        assert answer.status == 200
        held[1][1].close()


async def test_a_route_that_got_on_by_another_way_ends_the_start() -> None:
    async def unguarded(_request: web.Request) -> web.StreamResponse:
        return web.Response()

    stand = AdminStand(AdminLimits())
    stand.app.router.add_get("/admin/v1/backdoor", unguarded)
    listener = AdminListener(stand.app, [stand.socket])
    with pytest.raises(RuntimeError, match="/admin/v1/backdoor: a route without a declared scope"):
        await listener.start()
    await listener.close()
    stand.socket.close()
