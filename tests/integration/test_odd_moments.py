"""Answers of odd kinds at odd moments, and defects of our own: what the client gets, and what is recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gateway.core.stream.chat import ChatReader
from gateway.core.stream.summary import Ending, Flag, Outcome
from gateway.proxy import settle
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.client import raw_client
from tests.fakes.worker import backend_view, running_worker
from tests.integration.test_relay_endings import DONE, HEAD, HELLO, REQUEST, ROLE, STOP, chunk

pytestmark = pytest.mark.asyncio

ASK: dict[str, Any] = {"model": "tiny", "messages": []}
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"hello"}}]}'
STREAM = Script((HEAD + chunk(ROLE + HELLO + STOP + DONE) + b"0\r\n\r\n",))


def broken(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("words-of-a-defect")


# --- answers in one piece -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script, code, ending",
    [
        (Script((JSON_HEAD + chunk(b"{") + b"zz\r\n",), End.HANG), "backend_garbled", Ending.BAD_FRAMING),
        (Script((JSON_HEAD + chunk(b"{"),), End.RESET), "backend_died", Ending.RESET),
        (Script((JSON_HEAD + chunk(b"{"),), End.CLOSE), "backend_died", Ending.EOF),
    ],
    ids=["bad-chunk", "reset", "closed"],
)
async def test_an_answer_in_chunks_that_breaks_is_a_502(script: Script, code: str, ending: Ending) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(script)
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            seen = await client.answer()
        assert (seen.status, seen.error["code"]) == (502, code)
        record = await worker.record()
        assert (record.outcome, record.ending) == (Outcome.UPSTREAM_ERROR, ending)


async def test_a_long_answer_in_chunks_flows_in_chunks_to_its_end() -> None:
    body = WHOLE.replace(b"hello", b"x" * 600_000)
    pieces = [chunk(body[at : at + 50_000]) for at in range(0, len(body), 50_000)]
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((JSON_HEAD, *pieces, b"0\r\n\r\n")), Script((answer(WHOLE),)))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            seen = await client.answer()
            assert (seen.body, seen.whole) == (body, True)
            assert seen.headers["transfer-encoding"] == "chunked"
            await client.post(ASK)
            assert (await client.answer()).body == WHOLE, "the connections serve again, on both sides"
        assert backend.accepted == 1
        assert (await worker.record()).outcome is Outcome.OK


async def test_a_chunk_without_end_in_an_answer_is_a_502() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        endless = b"ffffffff\r\n" + b" " * 1_000_000
        backend.add(Script((JSON_HEAD + endless, *[b" " * 1_000_000] * 20), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            seen = await client.answer()
        assert (seen.status, seen.error["code"]) == (502, "backend_garbled")
        assert (await worker.record()).ending is Ending.OVERSIZE


# --- connections to backends --------------------------------------------------------------------------------------


async def test_a_long_request_is_sent_whole_and_its_sending_is_timed() -> None:
    prompt = "x" * 20_000_000
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(STREAM)
        async with raw_client(worker.port) as client:
            await client.post({**REQUEST, "prompt": prompt})
            assert (await client.answer()).whole
        sent: dict[str, Any] = json.loads((await backend.exchange(0)).request.body)
        assert sent["prompt"] == prompt
        record = await worker.record()
        assert record.sent_s is not None
        assert record.headers_s is not None
        assert 0 < record.sent_s <= record.headers_s


async def test_a_backend_that_answers_before_it_has_read_the_request_is_heard_and_its_connection_not_kept() -> None:
    refusal = answer(b'{"error":{"message":"too long"}}', status=400)
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((refusal,), early=True), Script((answer(WHOLE),)))
        async with raw_client(worker.port) as client:
            await client.post({**ASK, "prompt": "x" * 30_000_000})
            seen = await client.answer()
            assert (seen.status, seen.error["message"]) == (400, "too long")
            await client.post(ASK)
            assert (await client.answer()).body == WHOLE


async def test_what_a_backend_says_unasked_ends_its_idle_connection() -> None:
    gate = asyncio.Event()
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(WHOLE), gate, answer(b'{"for":"nobody"}'))), Script((answer(WHOLE),)))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            assert (await client.answer()).body == WHOLE
            await worker.record()
            gate.set()
            async with asyncio.timeout(10):
                await (await backend.exchange(0)).client_closed.wait()
            await client.post(ASK)
            assert (await client.answer()).body == WHOLE, "never the answer to another request"
        assert backend.accepted == 2


async def test_an_idle_connection_that_the_backend_closed_is_not_used_again() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(WHOLE),)), Script((answer(WHOLE),)))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            await client.answer()
            backend.drop_connections()
            async with asyncio.timeout(10):
                while backend.open_connections:  # noqa: ASYNC110  (turns of the loop)
                    await asyncio.sleep(0)
            await client.post(ASK)
            assert (await client.answer()).status == 200
        assert backend.accepted == 2


async def test_authorities_that_cannot_be_read_are_named_and_no_backend_is_asked(tmp_path: Path) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        url = backend.url.replace("http:", "https:")
        worker.serve([backend_view(url, tls_ca=str(tmp_path / "gone.pem"))])
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            seen = await client.answer()
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        assert "tls_ca" in seen.error["message"]
        assert str(tmp_path) not in seen.error["message"], "paths are the operator's business"
        assert backend.accepted == 0


# --- a stop -------------------------------------------------------------------------------------------------------


async def test_a_further_request_on_an_open_connection_is_refused_once_a_stop_has_begun() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(STREAM)
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            await client.answer()
            worker.desk.stopping = True
            await client.post(REQUEST)
            seen = await client.answer()
            assert (seen.status, seen.error["code"]) == (503, "shutting_down")
            assert int(seen.headers["retry-after"]) >= 1
            assert await client.at_end()
        assert len(backend.exchanges) == 1


# --- defects of our own -------------------------------------------------------------------------------------------


async def test_a_defect_before_a_byte_is_a_500_that_says_nothing_of_it_and_is_settled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_worker() as worker:
        worker.serve([])
        monkeypatch.setattr(worker.desk, "pool_for", broken)
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer()
            assert (seen.status, seen.error["code"]) == (500, "gateway_fault")
            assert b"words-of-a-defect" not in seen.body
            await client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            assert (await client.answer()).status == 200
        record = await worker.record()
        assert (record.status, record.error_code) == (500, "gateway_fault")
        assert worker.desk.holding == 0
        assert any(entry.exc_info for entry in caplog.records)


async def test_a_defect_of_the_measuring_costs_the_numbers_and_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatReader, "read", broken)
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(STREAM)
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer()
        assert (seen.body, seen.whole) == (ROLE + HELLO + STOP + DONE, True)
        record = await worker.record()
        assert record.summary is not None
        assert Flag.TAP_DISABLED in record.summary.flags
        assert worker.settler.tap_failures == 1


async def test_a_request_that_cannot_be_summed_up_is_recorded_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "_summary", broken)
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(STREAM)
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            assert (await client.answer()).whole
        record = await worker.record()
        assert record.summary is None
        assert (record.status, record.backend, record.ending) == (200, "a", Ending.COMPLETE)
        assert len(worker.settler.outcomes) == 1
