"""What a relayed chunk and a short request may cost at most, in calls: of the system, of Python, of built-ins.

A guard that is not timed.  Counts are the same on every machine and say when something is added to the hot path; they
say nothing of how long a call takes (`make bench-micro`, `make bench`).  The bounds are what is needed today: who adds
a call on purpose raises them in the same change and says why; who saves one lowers them.

System calls are reads and writes as the kernel counts them for the worker's process (`/proc/PID/io`), sockets and the
link to control included.  Waits (`epoll_wait`) are not among them: how many there are depends on what is ready at once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import Script, ScriptedBackend, answer
from tests.fakes.call_count import Calls, counted
from tests.fakes.client import RawClient, raw_client
from tests.fakes.gateway_process import connection, gateway
from tests.fakes.worker import backend_view, running_worker
from tests.integration.test_relay_endings import DONE, HEAD, REQUEST, ROLE, STOP, chunk

CHUNKS = 128  # whole batches of the tap
REQUESTS = 100

# --- the bounds ---------------------------------------------------------------------------------------------------

CHUNK_PROXY = 1  # `StreamRelay.feed`; the tap's queue is run once for 32 chunks, which is within the slack
CHUNK_CORE = 3.25  # stencil and timeline; the first batch of the stream is parsed
CHUNK_BUILTINS = 16  # one of them, frexp, only where the loop's clock has moved since the last chunk
REQUEST_GATEWAY = 208  # a coroutine that goes on after a wait counts again
REQUEST_AIOHTTP = 33
REQUEST_BUILTINS = 131
CHUNK_READS = CHUNK_WRITES = 1
REQUEST_READS = REQUEST_WRITES = 2

SLACK = 0.25
"""Per unit, for the tap's batches, timers, heartbeats to control: less than one call each."""

# What vLLM sends for a token, every time with another number, so that a client can wait for each.
EVENT = (
    'data: {"id":"chatcmpl-9f81031020311881","object":"chat.completion.chunk","created":1796089908,"model":"tiny",'
    '"choices":[{"index":0,"delta":{"content":"%06d"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
)
BODY = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}]}'
QUESTION = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


class Lockstep:
    """One stream, whose backend sends the next chunk when the client has the last: each is a read of its own."""

    def __init__(self, backend: ScriptedBackend, client: RawClient) -> None:
        self._backend = backend
        self._client = client
        self._gates = [asyncio.Event() for _ in range(CHUNKS)]
        self._last = asyncio.Event()

    async def begin(self) -> None:
        """The head and the first two events have gone by: from here on every chunk takes the usual way."""
        pieces: list[bytes | asyncio.Event] = [HEAD, chunk(ROLE), chunk((EVENT % 999_999).encode())]
        for number, gate in enumerate(self._gates):
            pieces += [gate, chunk((EVENT % number).encode())]
        pieces += [self._last, chunk(STOP) + chunk(DONE) + b"0\r\n\r\n"]
        self._backend.add(Script(tuple(pieces)))
        await self._client.post(REQUEST)
        await self._client.until(b"999999")

    async def run(self) -> None:
        """All chunks."""
        for number, gate in enumerate(self._gates):
            gate.set()
            await self._client.until(b'"%06d"' % number)

    async def end(self) -> None:
        """What comes after the chunks."""
        self._last.set()
        seen = await self._client.answer()
        assert seen.whole
        assert len(seen.events) == CHUNKS + 4


async def ask(client: RawClient, times: int) -> None:
    """Short requests, one after the other, on one connection."""
    for _ in range(times):
        await client.post(QUESTION)
        seen = await client.answer()
        assert (seen.status, seen.body) == (200, BODY)


async def calls_of_chunks() -> Calls:
    async with ScriptedBackend() as backend, running_worker() as worker, raw_client(worker.port) as client:
        worker.serve([backend_view(backend.url)])
        stream = Lockstep(backend, client)
        await stream.begin()
        with counted("gateway", "aiohttp") as calls:
            await stream.run()
        await stream.end()
        record = await worker.record()
    assert record.summary is not None
    assert record.summary.chunks == CHUNKS + 1, "the tap has seen every chunk"
    return calls


async def calls_of_requests() -> Calls:
    async with (
        ScriptedBackend(answerer=lambda _: Script((answer(BODY),))) as backend,
        running_worker() as worker,
        raw_client(worker.port) as client,
    ):
        worker.serve([backend_view(backend.url)])
        await ask(client, 3)
        with counted("gateway", "aiohttp") as calls:
            await ask(client, REQUESTS)
        assert len(worker.records) == REQUESTS + 3
    return calls


@pytest.mark.asyncio
async def test_a_chunk_takes_one_call_to_relay_and_eight_to_measure() -> None:
    calls = await calls_of_chunks()
    relayed = sum(count for place, count in calls.python.items() if place[1].startswith("proxy/"))
    assert 1 <= relayed / CHUNKS <= CHUNK_PROXY + SLACK, calls.told(CHUNKS)
    assert (calls.of("gateway") - relayed) / CHUNKS <= CHUNK_CORE + SLACK, calls.told(CHUNKS)
    assert calls.of("aiohttp") / CHUNKS <= SLACK, calls.told(CHUNKS)
    assert calls.builtins_of("gateway") / CHUNKS <= CHUNK_BUILTINS + SLACK, calls.told(CHUNKS)


@pytest.mark.asyncio
async def test_a_short_request_takes_no_more_calls_than_it_did() -> None:
    calls = await calls_of_requests()
    assert calls.of("gateway") / REQUESTS <= REQUEST_GATEWAY + SLACK, calls.told(REQUESTS)
    assert calls.of("aiohttp") / REQUESTS <= REQUEST_AIOHTTP + SLACK, calls.told(REQUESTS)
    assert calls.builtins_of("gateway") / REQUESTS <= REQUEST_BUILTINS + SLACK, calls.told(REQUESTS)


def read_and_written(pid: int) -> tuple[int, int]:
    """System calls of the read and of the write kind that a process has made."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    figures = {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}
    return figures["syscr"], figures["syscw"]


@pytest.mark.asyncio
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this kernel does not count system calls by process")
async def test_a_chunk_is_one_read_and_one_write_and_a_short_request_two_of_each(tmp_path: Path) -> None:
    async with (
        ScriptedBackend(answerer=lambda _: Script((answer(BODY),))) as backend,
        gateway(tmp_path, {"a": backend.url}) as running,
        connection(running.clients) as client,
    ):
        [pid] = running.workers().values()
        stream = Lockstep(backend, client)
        await stream.begin()
        before = read_and_written(pid)
        await stream.run()
        reads, writes = (now - then for now, then in zip(read_and_written(pid), before, strict=True))
        await stream.end()
        assert 1 <= reads / CHUNKS <= CHUNK_READS + SLACK
        assert 1 <= writes / CHUNKS <= CHUNK_WRITES + SLACK
        await ask(client, 3)
        before = read_and_written(pid)
        await ask(client, REQUESTS)
        reads, writes = (now - then for now, then in zip(read_and_written(pid), before, strict=True))
        assert 2 <= reads / REQUESTS <= REQUEST_READS + SLACK
        assert 2 <= writes / REQUESTS <= REQUEST_WRITES + SLACK


def test_only_what_the_product_does_by_itself_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "product"
    folder.mkdir()
    file = folder / "work.py"
    file.write_text("def inner():\n    return 1\n\ndef outer():\n    return max(inner(), inner())\n")
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with counted("product", "elsewhere") as calls:
        space["outer"]()  # the test's own call
    assert (calls.of("product"), calls.builtins_of("product"), calls.of("elsewhere")) == (2, 1, 0)
    assert calls.told(1).splitlines() == [
        "    2.00 python product work.py inner",
        "    1.00 C product work.py outer max",
    ]
