"""What the gateway refuses before a backend hears of it, and how it says so."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import LimitPolicy, ModelCard, PoolView, WorkerPolicy
from gateway.core.stream.summary import Outcome
from tests.fakes.backend import Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.worker import backend_view, running_worker

pytestmark = pytest.mark.asyncio

SMALL = WorkerPolicy(limits=LimitPolicy(body_bytes=1000))


async def _refused(raw: bytes, *, policy: WorkerPolicy | None = None, more: bytes = b"") -> Answer:
    """The answer to raw bytes; no backend may have heard of them."""
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        async with raw_client(worker.port) as client:
            await client.send(raw)
            if more:
                await client.send(more)
            seen = await client.answer()
        assert backend.exchanges == []
        assert backend.unscripted == []
    return seen


def _post(body: bytes, *, path: str = "/v1/chat/completions", headers: str = "") -> bytes:
    kind = "" if "content-type" in headers.lower() else "Content-Type: application/json\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: g\r\n{kind}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    "body, says",
    [
        (b"", "not a JSON object"),
        (b"{", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"model":"tiny"} trailing', "not a JSON object"),
        (b"\xff\xfe", "not a JSON object"),
        (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
    ],
    ids=["empty", "cut", "array", "text", "trailing", "no-utf8", "deep"],
)
async def test_a_body_that_is_no_json_object_is_a_400_that_does_not_quote_it(body: bytes, says: str) -> None:
    seen = await _refused(_post(body))
    assert seen.status == 400
    assert says in seen.error["message"]
    assert seen.headers["x-gateway-error"] == "1"
    assert seen.headers["content-type"] == "application/json"


async def test_a_declared_body_over_the_limit_is_refused_before_it_is_read() -> None:
    seen = await _refused(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: 1001\r\n\r\n",
        policy=SMALL,
    )
    assert (seen.status, seen.error["code"]) == (413, "body_too_large")
    assert "1000 bytes" in seen.error["message"]


async def test_a_chunked_body_over_the_limit_is_refused() -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    seen = await _refused(head, policy=SMALL, more=b"7d0\r\n" + b" " * 2000 + b"\r\n0\r\n\r\n")
    assert seen.status == 413


@pytest.mark.looptime
async def test_a_body_that_drips_ends_at_its_deadline() -> None:
    async with running_worker(idle_s=100_000) as worker:
        worker.serve([], policy=WorkerPolicy(limits=LimitPolicy(body_s=300)))
        async with raw_client(worker.port) as client:
            await client.send(_post(b'{"model":"tiny"}')[:-5])
            seen = await client.answer(timeout_s=10_000)
        assert (seen.status, seen.error["code"]) == (408, "body_timeout")
        assert (await worker.record()).outcome is Outcome.REJECTED


@pytest.mark.parametrize(
    "headers, status",
    [
        ("Content-Type: text/plain\r\n", 400),
        ("Content-Type: multipart/form-data; boundary=x\r\n", 400),
        ("Content-Encoding: gzip\r\n", 415),
        ("Expect: a-miracle\r\n", 417),
    ],
)
async def test_bodies_of_another_kind_are_refused(headers: str, status: int) -> None:
    seen = await _refused(_post(b'{"model":"tiny"}', headers=headers))
    assert seen.status == status
    assert seen.error["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/invocations",
        "/v1/../metrics",
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/v1/chat%2fcompletions",
        "/V1/chat/completions",
        "http://g/v1/chat/completions",
        "/collective_rpc",
        "/sleep",
        "/docs",
    ],
)
async def test_any_other_path_is_a_404_and_reaches_nobody(path: str) -> None:
    seen = await _refused(_post(b"{}", path=path))
    assert (seen.status, seen.error["code"]) == (404, "unknown_endpoint")


async def test_a_wrong_base_url_is_told_which_endpoint_there_is() -> None:
    seen = await _refused(_post(b"{}", path="/chat/completions"))
    said = "there is no such endpoint here, but there is /v1/chat/completions: is the base URL right?"
    assert (seen.status, seen.error["message"]) == (404, said)


async def test_another_verb_is_a_405_that_names_the_right_one() -> None:
    seen = await _refused(b"GET /v1/chat/completions HTTP/1.1\r\nHost: g\r\n\r\n")
    assert (seen.status, seen.error["code"], seen.headers["allow"]) == (405, "method_not_allowed", "POST")


async def test_errors_to_head_have_no_body_so_that_the_connection_goes_on() -> None:
    async with running_worker() as worker:
        worker.serve([])
        async with raw_client(worker.port) as client:
            for path, status in (("/nope", 404), ("/v1/chat/completions", 405), ("/ready", 503), ("/health", 200)):
                await client.send(f"HEAD {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
                head = await client.reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 %d " % status)
            await client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            assert (await client.answer()).body == b'{"status":"ok"}'


async def test_what_is_no_http_gets_one_json_error_and_the_end() -> None:
    seen = await _refused(b"NONSENSE\r\n\r\n")
    assert seen.status == 400
    assert "HTTP" in seen.error["message"]


@pytest.mark.parametrize(
    "pools, model, status, code",
    [
        ((PoolView(name="main", models=("big",)),), "other", 404, "model_not_found"),
        ((PoolView(name="main"),), "other", 404, "model_not_found"),
        ((PoolView(name="main"), PoolView(name="second", models=("x",))), "", 404, "model_not_found"),
    ],
)
async def test_an_unknown_model_is_a_404(pools: tuple[PoolView, ...], model: str, status: int, code: str) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], pools=pools)
        async with raw_client(worker.port) as client:
            await client.post({"model": model} if model else {})
            seen = await client.answer()
        assert (seen.status, seen.error["code"], seen.error["param"]) == (status, code, "model")
        assert backend.exchanges == []
        assert "|other|" in next(iter(worker.settler.outcomes)), "a client must not be able to invent labels"


@pytest.mark.parametrize("state", [s for s in BackendState if s not in {BackendState.SERVING, BackendState.UNKNOWN}])
async def test_without_a_serving_backend_the_answer_is_503_at_once(state: BackendState) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url, state=state)])
        async with raw_client(worker.port) as client:
            await client.post({"model": "tiny"})
            seen = await client.answer()
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        assert int(seen.headers["retry-after"]) >= 1
        assert backend.exchanges == []


async def test_expect_100_continue_is_met() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(b"{}"),)))
        request = _post(b'{"model":"tiny"}', headers="Expect: 100-continue\r\n")
        async with raw_client(worker.port) as client:
            await client.send(request[:-16])
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(request[-16:])
            assert (await client.answer()).status == 200


async def test_what_goes_upstream_is_rebuilt_and_carries_nothing_of_the_client_s_credentials() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(b"{}"),)))
        body = b'{ "model" : "first", "model":"tiny", "x": [1,  2.50, "\\u00e9"] }'
        headers = {
            "Authorization": "Bearer secret",
            "Cookie": "a=b",
            "X-Forwarded-For": "1.2.3.4",
            "X-Vllm-Priority": "-5",
            "X-data-parallel-rank": "3",
            "X-Request-Id": "mine-1",
            "traceparent": "00-1-2-01",
        }
        async with raw_client(worker.port) as client:
            await client.post(body, headers=headers)
            seen = await client.answer()
        sent = (await backend.exchange(0)).request
        assert sent.body == b'{"model":"tiny","x":[1,  2.50, "\\u00e9"]}', "last key wins, unknown values stay raw"
        assert set(sent.headers) == {"host", "content-type", "content-length", "x-request-id", "traceparent"}
        assert sent.headers["x-request-id"] == seen.headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "a\tb", "<script>"])
async def test_a_request_id_that_is_not_fit_for_logs_is_replaced(bad: str) -> None:
    async with running_worker() as worker:
        worker.serve([])
        async with raw_client(worker.port) as client:
            await client.post({}, headers={"X-Request-Id": bad})
            seen = await client.answer()
        assert seen.headers["x-request-id"] not in {"", bad}


async def test_the_gateway_s_own_endpoints() -> None:
    cards = (ModelCard(id="tiny", raw=b'{"id":"tiny","object":"model","max_model_len":2048}'),)
    async with ScriptedBackend() as backend, running_worker() as worker:
        async with raw_client(worker.port) as client:

            async def get(path: str, method: str = "GET") -> Answer:
                await client.send(f"{method} {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
                return await client.answer()

            assert (await get("/health")).status == 200
            assert (await get("/ready")).status == 503
            worker.serve([backend_view(backend.url)], cards=cards)
            assert (await get("/ready")).status == 200
            assert json.loads((await get("/version")).body) == {"version": "0.test"}
            models = json.loads((await get("/v1/models")).body)
            assert models == {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 2048}]}
            worker.desk.stopping = True
            assert (await get("/ready")).status == 503
        assert worker.records == [], "the gateway's own endpoints are no requests to settle"


@pytest.mark.looptime
async def test_a_head_that_has_begun_and_does_not_end_is_given_up() -> None:
    async with running_worker(idle_s=100_000, head_s=30) as worker:
        worker.serve([])
        begun = asyncio.get_running_loop().time()
        async with raw_client(worker.port) as client:
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nX-Slow: ")  # at once
            with contextlib.suppress(ConnectionError):
                assert await client.at_end(timeout_s=10_000)
        assert 30 <= asyncio.get_running_loop().time() - begun < 31


@pytest.mark.looptime
async def test_a_head_in_pieces_that_ends_in_time_is_served() -> None:
    async with running_worker(idle_s=100_000, head_s=30) as worker:
        worker.serve([])
        async with raw_client(worker.port) as client:
            for piece in (b"GET /hea", b"lth HTTP/1.1\r\n", b"Host: g\r\n\r\n"):
                await client.send(piece)
                await asyncio.sleep(5)
            assert (await client.answer()).status == 200
            await asyncio.sleep(1000)
            await client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            assert (await client.answer()).status == 200, "an idle connection has begun no head"


async def test_one_connection_too_many_is_told_so_and_the_others_go_on() -> None:
    async with running_worker(connections=1) as worker:
        worker.serve([])
        async with raw_client(worker.port) as first:
            await first.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            assert (await first.answer()).status == 200
            async with raw_client(worker.port) as second:
                seen = await second.answer()
                assert (seen.status, seen.error["code"]) == (429, "overloaded")
                assert await second.at_end()
            await first.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            assert (await first.answer()).status == 200
        assert worker.server.refused == 1


async def test_what_a_client_calls_its_model_or_verb_is_recorded_only_when_it_is_a_name() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy())
        async with raw_client(worker.port) as client:
            for model in ("a prompt that went astray", "x" * 5_000_000, "org/model-1:latest"):
                await client.post({"model": model})
                assert (await client.answer()).status == 404
            await client.send(b"PROPFINDISH /v1/chat/completions HTTP/1.1\r\nHost: g\r\n\r\n")
            await client.answer()
        assert [r.model for r in worker.records[:3]] == ["", "", "org/model-1:latest"]


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /v1/chat/completions HTTP/1.0\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a b/../\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health\r\n\r\n",
    ],
    ids=["te-on-1.0", "te-list", "host-with-path", "te-and-length", "no-host", "no-version"],
)
async def test_what_two_servers_could_read_differently_is_refused_and_ends_the_connection(request_: bytes) -> None:
    async with running_worker() as worker:
        worker.serve([])
        async with raw_client(worker.port) as client:
            await client.send(request_)
            assert (await client.answer()).status == 400
            assert await client.at_end()


async def test_a_chunked_body_that_turns_bad_is_refused_at_once() -> None:
    async with running_worker() as worker:
        worker.serve([])
        async with raw_client(worker.port) as client:
            await client.send(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
                b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n'
            )
            while not worker.desk.holding:  # noqa: ASYNC110  (turns of the loop)
                await asyncio.sleep(0)
            await client.send(b"zz\r\n")
            seen = await client.answer()
            assert (seen.status, seen.error["message"]) == (400, "the request body is cut or badly framed")
            assert await client.at_end()
        assert worker.desk.holding == 0
