"""A client that gets no reasoning hears comments while the engine thinks, though the engine is not silent at all."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.routing.snapshot import CommentPolicy, WorkerPolicy
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Outcome
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.client import raw_client
from tests.fakes.engine_events import chat
from tests.fakes.worker import backend_view, running_worker
from tests.integration.test_relay_endings import DONE, HEAD, HELLO, REQUEST, ROLE, STOP, chunk

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

COMMENT = b": keep-alive\n\n"

THOUGHTS = 20


@pytest.mark.parametrize("mode, comments", [("pass", 0), ("reasoning_content", 0), ("drop", 2), ("side", 2)])
async def test_thinking_that_is_not_seen_is_heard_of(mode: str, comments: int) -> None:
    gates = [asyncio.Event() for _ in range(THOUGHTS)]
    thoughts = [it for gate in gates for it in (gate, chunk(chat(reasoning="hm ")))]
    async with ScriptedBackend() as backend, running_worker(idle_s=100_000) as worker:
        policy = WorkerPolicy(comments=CommentPolicy(first_s=0, every_s=6))
        worker.serve([backend_view(backend.url)], policy=policy)
        backend.add(Script((HEAD, chunk(ROLE), *thoughts, chunk(HELLO + STOP + DONE) + TERMINATOR)))
        async with raw_client(worker.port) as client:
            loop = asyncio.get_running_loop()
            await client.post(REQUEST, headers={"X-Gateway-Reasoning": mode})
            for number, gate in enumerate(gates):
                loop.call_later(number, gate.set)
            seen = await client.answer(timeout_s=100_000)
        assert (await worker.record()).outcome is Outcome.OK
    assert seen.body.count(COMMENT) == comments
    if comments:
        assert seen.body == ROLE + COMMENT * comments + HELLO + STOP + DONE
