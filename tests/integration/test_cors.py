"""Web pages of allowed origins may call the gateway and read its answers; others, and with no list all, may not."""

from __future__ import annotations

import pytest

from gateway.core.routing.cors import CorsPolicy
from gateway.core.routing.snapshot import WorkerPolicy
from tests.fakes.backend import Script, ScriptedBackend, answer
from tests.fakes.client import Answer, RawClient, raw_client
from tests.fakes.worker import backend_view, running_worker

pytestmark = pytest.mark.asyncio

CHAT = "https://chat.example"
OK = Script(
    (
        answer(
            b'{"choices":[{"index":0,"finish_reason":"stop","message":{}}]}',
            headers="access-control-allow-origin: *\r\n",
        ),
    )
)
ALLOW = "access-control-allow-origin"


def policy(*origins: str) -> WorkerPolicy:
    return WorkerPolicy(cors=CorsPolicy(origins=origins))


async def preflight(client: RawClient, path: str, origin: str, **headers: str) -> Answer:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    await client.send(
        f"OPTIONS {path} HTTP/1.1\r\nHost: g\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n"
        f"{lines}\r\n".encode()
    )
    return await client.answer()


async def test_a_preflight_of_an_allowed_origin_is_answered_and_no_backend_hears_of_it() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=policy(CHAT))
        async with raw_client(worker.port) as client:
            seen = await preflight(
                client, "/v1/chat/completions", CHAT,
                Access_Control_Request_Headers="authorization, content-type, x-gateway-reasoning",
                Access_Control_Request_Private_Network="true",
            )  # fmt: skip
            assert (seen.status, seen.body) == (204, b"")
            assert seen.headers[ALLOW] == CHAT
            assert seen.headers["access-control-allow-methods"] == "POST"
            assert seen.headers["access-control-allow-headers"] == "authorization, content-type, x-gateway-reasoning"
            assert seen.headers["access-control-allow-private-network"] == "true"
            assert seen.headers["access-control-max-age"] == "600"
            assert seen.headers["vary"] == "Origin"
            again = await preflight(client, "/v1/nothing", CHAT)
            assert again.status == 404
        assert backend.exchanges == []
        assert [record.endpoint for record in worker.records] == ["other"]


@pytest.mark.parametrize("origins", [(), ("https://other.example",)])
async def test_a_preflight_of_any_other_origin_is_405(origins: tuple[str, ...]) -> None:
    async with running_worker() as worker:
        worker.serve([], policy=policy(*origins))
        async with raw_client(worker.port) as client:
            seen = await preflight(client, "/v1/chat/completions", CHAT)
            assert seen.status == 405
            assert ALLOW not in seen.headers


async def test_answers_and_errors_may_be_read_by_an_allowed_origin_alone() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=policy(CHAT))
        backend.add(OK, OK, OK)
        async with raw_client(worker.port) as client:
            for origin, model, status, allowed in (
                (CHAT, "tiny", 200, CHAT),
                (CHAT, "nobody's", 404, CHAT),
                ("https://evil.example", "tiny", 200, None),
                ("https://chat.example.evil", "tiny", 200, None),
            ):
                await client.post({"model": model}, headers={"Origin": origin})
                seen = await client.answer()
                assert (seen.status, seen.headers.get(ALLOW)) == (status, allowed)
                assert seen.headers["vary"] == "Origin"


async def test_a_star_allows_every_page() -> None:
    async with running_worker() as worker:
        worker.serve([], policy=policy("*"))
        async with raw_client(worker.port) as client:
            seen = await preflight(client, "/v1/models", "https://anybody.example")
            assert (seen.status, seen.headers[ALLOW]) == (204, "*")


@pytest.mark.parametrize("asked", ["x\x00y", "a" * 3000, "<script>"])
async def test_headers_that_are_none_are_not_repeated(asked: str) -> None:
    async with running_worker() as worker:
        worker.serve([], policy=policy(CHAT))
        async with raw_client(worker.port) as client:
            seen = await preflight(client, "/v1/models", CHAT, Access_Control_Request_Headers=asked)
            assert "access-control-allow-headers" not in seen.headers
