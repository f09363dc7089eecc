"""Bodies that come in, all together: bounded, given back however a client ends, and no short one is kept out."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.core.routing.snapshot import LimitPolicy, WorkerPolicy
from gateway.core.stream.summary import Outcome
from tests.fakes.backend import Script, ScriptedBackend, answer
from tests.fakes.client import RawClient, raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker

pytestmark = pytest.mark.asyncio

LIMITS = LimitPolicy(body_bytes=1_000_000, receiving_bytes=1_000_000)
WHOLE = answer(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"y"},"finish_reason":"stop"}]}')
BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x" * 900_000}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


async def begin(worker: FakeWorker, client: RawClient, sent_bytes: int) -> None:
    """Send a part of a long body, and wait until the worker has it."""
    await client.send(HEAD % len(BODY) + BODY[:sent_bytes])
    await worker.until(lambda: worker.desk.intake.held_bytes > sent_bytes - 200_000)


async def test_beyond_the_bound_a_body_is_refused_with_a_time_to_come_back_and_the_others_go_on() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(limits=LIMITS))
        backend.add(Script((WHOLE,)), Script((WHOLE,)), Script((WHOLE,)))
        async with (
            raw_client(worker.port) as first,
            raw_client(worker.port) as second,
            raw_client(worker.port) as short,
        ):
            await begin(worker, first, 800_000)
            await second.send(HEAD % len(BODY) + BODY[:700_000])
            refused = await second.answer()
            assert (refused.status, refused.error["code"]) == (503, "reception_full")
            assert int(refused.headers["retry-after"]) == 2
            assert await second.at_end(), "the rest of its body is not read"
            await short.post({"model": "tiny", "messages": []})
            assert (await short.answer()).status == 200
            await first.send(BODY[800_000:])
            assert (await first.answer()).status == 200
        assert worker.desk.intake.held_bytes == 0
        async with raw_client(worker.port) as again:
            await again.post(BODY)
            assert (await again.answer()).status == 200
        assert worker.gate.refusals["|reception_full"] == 1
        refusals = [it for it in worker.records if it.error_code == "reception_full"]
        assert [it.outcome for it in refusals] == [Outcome.REJECTED]


async def test_a_client_that_leaves_gives_back_what_it_had_sent() -> None:
    async with running_worker() as worker:
        worker.serve([], policy=WorkerPolicy(limits=LIMITS))
        async with raw_client(worker.port) as client:
            await begin(worker, client, 800_000)
        await worker.until(lambda: worker.desk.intake.held_bytes == 0)


async def test_a_body_that_does_not_come_whole_gives_back_what_there_was() -> None:
    async with running_worker() as worker:
        limits = LimitPolicy(body_bytes=1_000_000, receiving_bytes=1_000_000, body_s=0.5)
        worker.serve([], policy=WorkerPolicy(limits=limits))
        async with raw_client(worker.port) as client:
            await client.send(HEAD % len(BODY) + BODY[:800_000])
            async with asyncio.timeout(30):
                assert (await client.answer()).status == 408
        await worker.until(lambda: worker.desk.intake.held_bytes == 0)
