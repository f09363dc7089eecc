"""Every endpoint that backends answer: its request goes to its own path, its answer comes back, the record fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.routing.endpoints import ENDPOINTS, Endpoint, Serves, Takes
from gateway.core.routing.snapshot import LimitPolicy, WorkerPolicy
from gateway.core.stream.edit import event_data, split_events
from gateway.core.stream.summary import Dialect, Ending, Outcome
from tests.fakes import recordings
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_relay_endings import HEAD, chunk

pytestmark = pytest.mark.asyncio

ENGINE = [e for e in ENDPOINTS.values() if e.serves is Serves.ENGINE and e.takes is Takes.JSON]
OPAQUE = [e for e in ENGINE if e.dialect is Dialect.OPAQUE]
VECTORS = [e for e in ENGINE if b"application/octet-stream" in e.answers]
USAGE = b'{"object":"list","data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":7,"total_tokens":7}}'
HTML = answer(b"<html>", content_type="text/html")
EVENTS = answer(b"data: {}\n\n", content_type="text/event-stream")


def names(endpoints: list[Endpoint]) -> list[str]:
    return [endpoint.name for endpoint in endpoints]


async def asked(
    worker: FakeWorker, backend: ScriptedBackend, script: bytes | Script, path: str, **fields: Any
) -> Answer:
    backend.add(script if isinstance(script, Script) else Script((script,)))
    async with raw_client(worker.port) as client:
        await client.post({"model": "tiny", **fields}, path=path)
        return await client.answer()


@pytest.mark.parametrize("endpoint", ENGINE, ids=names(ENGINE))
async def test_a_request_goes_to_the_path_of_its_endpoint_and_the_answer_comes_back(endpoint: Endpoint) -> None:
    body = b'{"anything":1}'
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        seen = await asked(worker, backend, answer(body), endpoint.path + "?beta=true", input="a", x=[1, 2.50])
        assert (seen.status, seen.body, seen.whole) == (200, body, True)
        sent = (await backend.exchange(0)).request
        assert (sent.method, sent.target) == ("POST", endpoint.path)
        assert json.loads(sent.body) == {"model": "tiny", "input": "a", "x": [1, 2.5]}
        record = await worker.record()
        assert (record.endpoint, record.model, record.backend, record.stream) == (endpoint.name, "tiny", "a", False)
        assert record.outcome is (Outcome.OK if endpoint in OPAQUE else Outcome.UPSTREAM_ERROR)


@pytest.mark.parametrize("endpoint", OPAQUE, ids=names(OPAQUE))
async def test_an_opaque_answer_has_the_prompt_s_tokens_and_no_rates(endpoint: Endpoint) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        seen = await asked(worker, backend, answer(USAGE), endpoint.path, stream=True)
        assert (seen.status, seen.body) == (200, USAGE), "these endpoints have no streams, whatever is asked"
        record = await worker.record()
        assert record.summary is not None
        summary = record.summary
        assert (record.outcome, summary.prompt_tokens, summary.completion_tokens) == (Outcome.OK, 7, None)
        assert (summary.decode_tps, summary.flags) == (None, ())


@pytest.mark.parametrize("endpoint", VECTORS, ids=names(VECTORS))
async def test_vectors_may_come_as_bytes(endpoint: Endpoint) -> None:
    vectors = bytes(range(256)) * 40
    script = answer(vectors, content_type="application/octet-stream", headers='metadata: {"usage":{}}\r\n')
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        seen = await asked(worker, backend, script, endpoint.path, encoding_format="bytes")
        assert (seen.status, seen.body, seen.headers["metadata"]) == (200, vectors, '{"usage":{}}')
        record = await worker.record()
        assert (record.outcome, record.summary) == (Outcome.OK, None)


@pytest.mark.parametrize("close", [False, True], ids=["by length", "by the connection's end"])
async def test_bytes_that_end_with_their_connection_are_whole(close: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n"
    head += b"\r\n" if close else b"content-length: 3\r\n\r\n"
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        script = Script((head + b"\x00\x01\x02",), End.CLOSE)
        seen = await asked(worker, backend, script, "/v1/embeddings")
        assert (seen.status, seen.body) == (200, b"\x00\x01\x02")
        assert (await worker.record()).outcome is Outcome.OK


@pytest.mark.parametrize("endpoint", ENGINE, ids=names(ENGINE))
async def test_an_answer_of_another_kind_is_a_502(endpoint: Endpoint) -> None:
    others = [HTML] if endpoint.streams else [HTML, EVENTS]
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        for number, other in enumerate(others):
            seen = await asked(worker, backend, other, endpoint.path)
            assert seen.status == 502
            record = await worker.record(number)
            assert (record.ending, record.outcome) == (Ending.NOT_SSE, Outcome.UPSTREAM_ERROR)


@pytest.mark.parametrize("endpoint", OPAQUE, ids=names(OPAQUE))
async def test_an_opaque_answer_that_breaks_off_is_a_502_or_cut(endpoint: Endpoint) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000\r\n\r\n"
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        seen = await asked(worker, backend, Script((head + USAGE,), End.CLOSE), endpoint.path)
        assert (seen.status, (await worker.record()).outcome) == (502, Outcome.UPSTREAM_ERROR)
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(limits=LimitPolicy(answer_hold_bytes=1024)))
        seen = await asked(worker, backend, Script((head + b" " * 5000,), End.CLOSE), endpoint.path)
        assert (seen.whole, (await worker.record(1)).outcome) == (False, Outcome.UPSTREAM_ERROR)


@pytest.mark.parametrize("endpoint", ENGINE, ids=names(ENGINE))
async def test_a_backend_s_own_error_passes_as_it_is(endpoint: Endpoint) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        seen = await asked(worker, backend, answer(b'{"detail":"Not Found"}', status=404), endpoint.path)
        assert (seen.status, seen.body) == (404, b'{"detail":"Not Found"}')
        assert "x-gateway-error" not in seen.headers
        assert (await worker.record()).outcome is Outcome.REJECTED


# --- the shape of our own errors, by dialect ----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    "body,state,status,kind",
    [
        (b"{", None, 400, "invalid_request_error"),
        (b'{"model":"tiny","n":99}', None, 400, "invalid_request_error"),
        (b'{"model":"other"}', None, 404, "not_found_error"),
        (b'{"model":"tiny","x":"' + b"x" * 2000 + b'"}', None, 413, "request_too_large"),
        (b'{"model":"tiny"}', "none", 503, "overloaded_error"),
        (b'{"model":"tiny"}', "html", 502, "api_error"),
    ],
    ids=["no JSON", "refused", "no model", "too large", "none serving", "garbled"],
)
async def test_messages_have_errors_in_anthropic_s_shape(
    path: str, body: bytes, state: str | None, status: int, kind: str
) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        serving = [] if state == "none" else [backend_view(backend.url)]
        worker.serve(serving, policy=WorkerPolicy(limits=LimitPolicy(body_bytes=1024)))
        backend.add(Script((HTML,)))
        async with raw_client(worker.port) as client:
            await client.post(body, path=path)
            seen = await client.answer()
        told = json.loads(seen.body)
        assert (seen.status, told["type"], told["error"]["type"]) == (status, "error", kind)
        assert set(told) == {"type", "error"}
        assert set(told["error"]) == {"type", "message"}
        assert seen.headers["x-gateway-error"] == "1"


STARTS = {
    Dialect.CHAT: b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
    Dialect.COMPLETIONS: b'data: {"choices":[{"index":0,"text":"a"}]}\n\n',
    Dialect.RESPONSES: b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n',
    Dialect.MESSAGES: b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"a"}}\n\n',
}
STREAMED = [e for e in ENGINE if e.streams]


@pytest.mark.parametrize("end", [End.CLOSE, End.RESET])
@pytest.mark.parametrize("endpoint", STREAMED, ids=names(STREAMED))
async def test_a_stream_that_breaks_ends_in_an_error_event_of_its_dialect(endpoint: Endpoint, end: End) -> None:
    assert endpoint.dialect is not None
    first = STARTS[endpoint.dialect]
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        seen = await asked(worker, backend, Script((HEAD, chunk(first)), end), endpoint.path, stream=True)
        record = await worker.record()
    assert (seen.status, seen.whole, record.outcome) == (200, True, Outcome.UPSTREAM_ERROR)
    assert seen.body.startswith(first)
    added = seen.body[len(first) :].decode().split("\n\n")
    match endpoint.dialect:
        case Dialect.CHAT | Dialect.COMPLETIONS:
            event, marker, rest = added
            assert (marker, rest) == ("data: [DONE]", "")
            assert json.loads(event.removeprefix("data: "))["error"]["code"] == "backend_died"
        case Dialect.RESPONSES:
            event, rest = added
            told = json.loads(event.removeprefix("event: error\ndata: "))
            assert (told["type"], told["code"], told["error"]["code"]) == ("error", "backend_died", "backend_died")
            assert told["message"] == told["error"]["message"]
            assert rest == ""
        case Dialect.MESSAGES:
            event, rest = added
            told = json.loads(event.removeprefix("event: error\ndata: "))
            assert (told["type"], told["error"]["type"]) == ("error", "api_error")
            assert rest == ""


@pytest.mark.parametrize("headers", [{"X-Api-Key": "secret"}, {"Authorization": "Bearer secret"}])
async def test_no_key_and_no_switch_of_a_client_reaches_the_engine_by_any_endpoint(headers: dict[str, str]) -> None:
    switches = {
        "X-Vllm-Priority": "-5",
        "X-data-parallel-rank": "3",
        "X-Forwarded-For": "1.2.3.4",
        "X-Forwarded-Host": "h",
        "X-Forwarded-Proto": "https",
        "Forwarded": "for=1.2.3.4",
        "X-Real-IP": "1.2.3.4",
        "Via": "1.1 x",
        "endpoint-load-metrics-format": "TEXT",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "x",
        "OpenAI-Organization": "o",
        "Cookie": "a=b",
        "Accept-Encoding": "gzip",
        "X-Gateway-Backend": "b",
        "X-Internal": "1",
    }
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            for number, endpoint in enumerate(ENGINE):
                backend.add(Script((answer(b"{}"),)))
                await client.post({"model": "tiny"}, path=endpoint.path, headers={**headers, **switches})
                assert (await client.answer()).status == 200
                sent = (await backend.exchange(number)).request
                assert set(sent.headers) == {"host", "content-type", "content-length", "x-request-id"}
                assert b"secret" not in sent.head + sent.body


async def test_several_choices_are_expected_of_chat_alone() -> None:
    """`n` is no field of a message: one that stops is whole."""
    body = b'{"content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}'
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        await asked(worker, backend, answer(body), "/v1/messages", n=3)
        assert (await worker.record()).outcome is Outcome.OK


@pytest.mark.parametrize("name", ["responses-stream", "metrics-responses-stream", "messages-stream"])
async def test_the_pace_stands_in_the_usage_of_a_stream_and_nothing_else_changes(name: str) -> None:
    recording = recordings.load(f"vllm-0.32-cpu/{name}")
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script.of_recording(recording))
        async with raw_client(worker.port) as client:
            await client.post(recording.request_body, path=recording.path, headers={"X-Gateway-Metrics": "usage"})
            seen = await client.answer()
    before, after = split_events(recording.body), split_events(seen.body)
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    (old, new), *others = changed
    assert others == []
    told, meant = json.loads(event_data(new)), json.loads(event_data(old))
    usage = (told.get("response") or told)["usage"]
    pace = usage.pop("pacekeeper")
    assert told == meant
    assert pace["completion_tokens"] == usage["output_tokens"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_no_event_is_added_where_clients_know_a_closed_set_of_them(path: str) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            await client.post({"model": "tiny"}, path=path, headers={"X-Gateway-Metrics": "event"})
            seen = await client.answer()
        assert seen.status == 400
        assert "no event can be added" in seen.error["message"]
        assert backend.accepted == 0
