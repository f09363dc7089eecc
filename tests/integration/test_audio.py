"""Transcriptions and translations: a form goes on as it came, its answer is a text or a stream like chat."""

from __future__ import annotations

import io

import aiohttp
import openai
import pytest

from gateway.core.routing.snapshot import Alias, LimitPolicy, PoolView, WorkerPolicy
from gateway.core.stream.summary import Outcome
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.worker import backend_view, running_worker
from tests.integration.test_relay_endings import DONE, HEAD, chunk

pytestmark = pytest.mark.asyncio

PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")
TYPE = {"Content-Type": "multipart/form-data; boundary=xyz"}
TEXT = b'{"text":"hello","usage":{"type":"duration","seconds":3}}'
WHOLE = answer(TEXT)
STREAM = (
    b'data: {"id":"t","object":"transcription.chunk","created":1,"model":"tiny",'
    b'"choices":[{"delta":{"content":"hel"}}]}\n\n'
    b'data: {"id":"t","object":"transcription.chunk","created":1,"model":"tiny",'
    b'"choices":[{"delta":{"content":"lo"},"finish_reason":"stop","stop_reason":null}]}\n\n'
)
USAGE = (
    b'data: {"id":"t","object":"transcription.chunk","created":1,"model":"tiny","choices":[],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}\n\n'
)


def form(**fields: str) -> bytes:
    audio = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\x00\r\n\r\n'
    texts = "".join(f'--xyz\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items())
    return audio + texts.encode() + b"--xyz--\r\n"


async def refused(body: bytes, headers: dict[str, str] = TYPE, policy: WorkerPolicy | None = None) -> Answer:
    """The answer to a form that no backend may hear of."""
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        async with raw_client(worker.port) as client:
            await client.post(body, path=PATHS[0], headers=headers)
            seen = await client.answer()
        assert backend.accepted == 0
        assert (await worker.record()).outcome is Outcome.REJECTED
    return seen


@pytest.mark.parametrize("path", PATHS)
async def test_a_form_goes_on_byte_for_byte_to_the_pool_of_its_model(path: str) -> None:
    body = form(model="tiny", language="en")
    pools = (PoolView(name="main", models=("tiny",)), PoolView(name="second", models=("x",)))
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], pools=pools)
        backend.add(Script((WHOLE,)))
        async with raw_client(worker.port) as client:
            await client.post(body, path=path, headers={**TYPE, "Authorization": "Bearer secret"})
            seen = await client.answer()
        assert (seen.status, seen.body) == (200, TEXT)
        sent = (await backend.exchange(0)).request
        assert (sent.target, sent.body) == (path, body)
        assert sent.headers["content-type"] == 'multipart/form-data; boundary="xyz"'
        assert "authorization" not in sent.headers
        record = await worker.record()
        assert (record.outcome, record.model, record.stream) == (Outcome.OK, "tiny", False)
        assert record.summary is not None
        assert (record.summary.prompt_tokens, record.summary.completion_tokens) == (None, None)


async def test_an_alias_in_a_form_is_replaced_by_the_model_that_it_stands_for() -> None:
    pools = (PoolView(name="main", aliases=(Alias("whisper-1", "tiny"),)),)
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], pools=pools)
        backend.add(Script((WHOLE,)))
        async with raw_client(worker.port) as client:
            await client.post(form(model="whisper-1", language="en"), path=PATHS[0], headers=TYPE)
            assert (await client.answer()).status == 200
        assert (await backend.exchange(0)).request.body == form(model="tiny", language="en")
        assert (await worker.record()).model == "tiny"


async def test_a_chunked_upload_gets_a_length() -> None:
    body = form(model="tiny")
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((WHOLE,)))
        async with raw_client(worker.port) as client:
            await client.send(
                f"POST {PATHS[0]} HTTP/1.1\r\nHost: g\r\nContent-Type: {TYPE['Content-Type']}\r\n".encode()
                + b"Transfer-Encoding: chunked\r\n\r\n"
                + chunk(body[:50])
                + chunk(body[50:])
                + b"0\r\n\r\n"
            )
            assert (await client.answer()).status == 200
        sent = (await backend.exchange(0)).request
        assert (sent.body, sent.headers["content-length"]) == (body, str(len(body)))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("usage", [b"", USAGE], ids=["no usage", "usage"])
async def test_a_stream_passes_and_is_measured_like_chat(path: str, usage: bytes) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((HEAD, chunk(STREAM + usage + DONE) + b"0\r\n\r\n")))
        async with raw_client(worker.port) as client:
            await client.post(form(model="tiny", stream="true"), path=path, headers=TYPE)
            seen = await client.answer()
        assert (seen.body, seen.whole) == (STREAM + usage + DONE, True)
        record = await worker.record()
        assert record.summary is not None
        assert (record.outcome, record.stream, record.injected) == (Outcome.OK, True, False)
        assert (record.summary.chunks, record.summary.finish_reasons) == (2, ("stop",))
        assert record.summary.prompt_tokens == (9 if usage else None)
        assert record.summary.completion_tokens == 2


async def test_a_stream_that_breaks_ends_in_an_error_event_and_the_marker() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((HEAD, chunk(STREAM[: STREAM.index(b"\n\n") + 2])), End.RESET))
        async with raw_client(worker.port) as client:
            await client.post(form(model="tiny", stream="true"), path=PATHS[0], headers=TYPE)
            seen = await client.answer()
        assert seen.whole
        assert seen.body.endswith(b"}\n\ndata: [DONE]\n\n")
        assert seen.error["code"] == "backend_died"
        assert (await worker.record()).outcome is Outcome.UPSTREAM_ERROR


async def test_an_answer_may_be_plain_text() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(b"1\n00:00 --> 00:01\nhello\n", content_type="text/plain; charset=utf-8"),)))
        async with raw_client(worker.port) as client:
            await client.post(form(model="tiny", response_format="srt"), path=PATHS[0], headers=TYPE)
            assert (await client.answer()).body == b"1\n00:00 --> 00:01\nhello\n"
        record = await worker.record()
        assert (record.outcome, record.summary) == (Outcome.OK, None)


@pytest.mark.parametrize(
    "body,headers,says",
    [
        (form(model="tiny"), {"Content-Type": "application/json"}, "must be multipart/form-data"),
        (form(model="tiny"), {"Content-Type": "multipart/form-data"}, "must be multipart/form-data"),
        (form(model="tiny"), {"Content-Type": "multipart/form-data; boundary=other"}, "does not begin"),
        (form(model="tiny")[:-6], TYPE, "has no end"),
        (form(model="tiny") + form(model="other"), TYPE, "goes on after its end"),
        (form(n="99"), TYPE, "n is 99; at most 16"),
        (b"", TYPE, "does not begin"),
    ],
)
async def test_a_form_that_is_none_reaches_nobody(body: bytes, headers: dict[str, str], says: str) -> None:
    seen = await refused(body, headers)
    assert (seen.status, seen.error["code"]) == (400, "bad_request")
    assert says in seen.error["message"]


async def test_a_form_over_the_limit_is_a_413_and_a_compressed_one_a_415() -> None:
    small = WorkerPolicy(limits=LimitPolicy(body_bytes=1024))
    assert (await refused(form(prompt="x" * 2000), policy=small)).status == 413
    assert (await refused(form(model="tiny"), {**TYPE, "Content-Encoding": "gzip"})).status == 415


async def test_a_model_that_nobody_serves_is_a_404() -> None:
    seen = await refused(form(model="other"))
    assert (seen.status, seen.error["code"]) == (404, "model_not_found")


async def test_real_clients_send_forms_that_pass() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((WHOLE,)), Script((HEAD, chunk(STREAM + DONE) + b"0\r\n\r\n")), Script((WHOLE,)))
        base = f"http://127.0.0.1:{worker.port}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="unused", max_retries=0) as client:
            audio = ("a b.wav", io.BytesIO(b"RIFF\x00\x01"), "audio/wav")
            whole = await client.audio.transcriptions.create(
                model="tiny", file=audio, language="en", timestamp_granularities=["word", "segment"]
            )
            assert whole.text == "hello"
            stream = await client.audio.transcriptions.create(model="tiny", file=audio, stream=True)
            assert [event async for event in stream]
        async with aiohttp.ClientSession() as session:  # noqa: TID251  (a client of the gateway)
            data = aiohttp.FormData({"model": "tiny", "prompt": "caf\u00e9"})
            data.add_field("file", io.BytesIO(b"RIFF"), filename="\u00e9.wav")
            async with session.post(f"{base}/audio/translations", data=data) as got:
                assert (await got.json())["text"] == "hello"
        assert [record.outcome for record in worker.records] == [Outcome.OK] * 3
        assert [record.model for record in worker.records] == ["tiny"] * 3
