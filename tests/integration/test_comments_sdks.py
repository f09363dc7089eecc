"""Streams that begin before a backend has answered, as the SDKs of both APIs see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anthropic
import openai
import pytest

from gateway.core.routing.snapshot import CommentPolicy, WorkerPolicy
from tests.fakes.backend import Script, ScriptedBackend, answer
from tests.fakes.delivered import read_chat
from tests.fakes.recordings import load
from tests.fakes.worker import backend_view, running_worker

pytestmark = pytest.mark.asyncio

EARLY = WorkerPolicy(comments=CommentPolicy(first_s=0.05, every_s=0.05, untouched=True))
STREAM = load("vllm-0.32-cpu/chat-stream-include-usage")
OPENAI_ERROR = answer(
    b'{"error":{"message":"no such thing","type":"BadRequestError","param":"n","code":400}}', status=400
)
MESSAGES_ERROR = answer(
    b'{"type":"error","error":{"type":"invalid_request_error","message":"no such thing"}}', status=400
)


@asynccontextmanager
async def silent_until(gate: asyncio.Event, answered: bytes) -> AsyncIterator[str]:
    """The address of a worker whose backend says nothing before ``gate``."""
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=EARLY)
        backend.add(Script((gate, answered)))
        yield f"http://127.0.0.1:{worker.port}"
        assert (await worker.record()).status == 200


async def openai_stream(url: str, gate: asyncio.Event) -> str:
    """What a chat says; its head is there before the backend's."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=30.0) as client:
        stream = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        gate.set()
        return "".join([part.choices[0].delta.content or "" async for part in stream if part.choices])


async def test_openai_python_reads_the_answer_after_comments() -> None:
    gate = asyncio.Event()
    async with silent_until(gate, STREAM.with_head().raw) as url:
        assert await openai_stream(url, gate) == "".join(read_chat(STREAM.body).content.values())


async def test_openai_python_raises_the_engine_s_error_after_comments() -> None:
    gate = asyncio.Event()
    async with silent_until(gate, OPENAI_ERROR) as url:
        with pytest.raises(openai.APIError, match="no such thing"):
            await openai_stream(url, gate)


async def test_anthropic_python_skips_pings_and_raises_the_engine_s_error() -> None:
    gate = asyncio.Event()
    async with (
        silent_until(gate, MESSAGES_ERROR) as url,
        anthropic.AsyncAnthropic(base_url=url, api_key="unused", max_retries=0, timeout=30.0) as client,
    ):
        stream = await client.messages.create(
            model="tiny", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        gate.set()
        with pytest.raises(anthropic.APIStatusError, match="no such thing"):
            await anext(aiter(stream))  # no event comes before it but pings, which are none
