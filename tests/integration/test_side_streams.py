"""Reasoning on a stream of its own: live and late readers, the same key, slow readers, ends, another worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.core.routing.snapshot import SidePolicy, WorkerPolicy
from gateway.proxy import side_door
from gateway.proxy.side_door import SideDoor
from tests.fakes.backend import End, Script, ScriptedBackend
from tests.fakes.client import Answer, RawClient, raw_client
from tests.fakes.delivered import payloads, read_chat
from tests.fakes.engine_events import DONE, chat, role
from tests.fakes.gateway_process import connection, gateway
from tests.fakes.recordings import load
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_relay_endings import HEAD, chunk

pytestmark = pytest.mark.asyncio

STREAM = load("vllm-0.32-cpu/chat-stream-include-usage")
REASONING, CONTENT = read_chat(STREAM.body).engine_text()
ASK: dict[str, Any] = {"model": "tiny", "messages": [], "stream": True}
ASIDE = {"X-Gateway-Reasoning": "side"}
NAME = "x-gateway-reasoning-stream"


async def get(client: RawClient, path: str, *, version: str = "1.1") -> None:
    await client.send(f"GET {path} HTTP/{version}\r\nHost: g\r\n\r\n".encode())


async def got(port: int, path: str) -> Answer:
    async with raw_client(port) as client:
        await get(client, path)
        return await client.answer()


async def head_of(client: RawClient) -> str:
    """The side stream's path, once the first event of the answer is there."""
    return (await client.until(b"data:")).headers[NAME]


@asynccontextmanager
async def flow(*scripts: Script, side: SidePolicy | None = None) -> AsyncIterator[tuple[FakeWorker, ScriptedBackend]]:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(side=side or SidePolicy()))
        backend.add(*scripts)
        yield worker, backend


async def test_a_late_reader_gets_what_is_kept_and_the_end() -> None:
    async with flow(Script.of_recording(STREAM)) as (worker, _), raw_client(worker.port) as client:
        await client.post(ASK, headers=ASIDE)
        answer = await client.answer()
        assert read_chat(answer.body).engine_text() == ("", CONTENT)
        seen = await got(worker.port, answer.headers[NAME])
    assert (seen.status, seen.whole) == (200, True)
    assert seen.headers["content-type"].startswith("text/event-stream")
    assert read_chat(seen.body, names=("reasoning",)).engine_text() == (REASONING, "")
    assert seen.events[-1] == DONE
    first, sent = payloads(seen.body)[0][1], payloads(STREAM.body)[0][1]
    assert [first[key] for key in ("id", "object", "created", "model")] == [
        sent[key] for key in ("id", "object", "created", "model")
    ]
    assert first["choices"][0] == {"index": 0, "delta": {"reasoning": "\n"}, "finish_reason": None}


async def test_readers_get_reasoning_as_it_comes_beside_the_answer() -> None:
    gates = [asyncio.Event() for _ in range(2)]
    pieces = (
        HEAD,
        chunk(role()),
        gates[0],
        chunk(chat(reasoning="one ")),
        gates[1],
        chunk(chat(reasoning="two", content="answer")),
        chunk(chat(finish="stop") + DONE),
        b"0\r\n\r\n",
    )
    async with flow(Script(pieces)) as (worker, _), raw_client(worker.port) as client:
        await client.post(ASK, headers=ASIDE)
        path = await head_of(client)
        async with raw_client(worker.port) as early, raw_client(worker.port) as old:
            await get(early, path)
            await get(old, path, version="1.0")
            gates[0].set()
            assert b"one " in (await early.until(b"one ")).body
            gates[1].set()
            for reader in (early, old):
                assert read_chat((await reader.answer()).body).engine_text() == ("one two", "")
        assert read_chat((await client.answer()).body).engine_text() == ("", "answer")


async def test_openai_python_reads_both_streams() -> None:
    async with flow(Script.of_recording(STREAM)) as (worker, _):
        base = f"http://127.0.0.1:{worker.port}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="unused", default_headers=ASIDE) as client:
            raw = await client.chat.completions.with_raw_response.create(model="tiny", messages=[], stream=True)
            answered = [part async for part in raw.parse()]
            aside = await client.get(
                raw.headers[NAME].removeprefix("/v1"),
                cast_to=openai.types.chat.ChatCompletionChunk,
                stream=True,
                stream_cls=openai.AsyncStream[openai.types.chat.ChatCompletionChunk],
            )
            thought = [part async for part in aside]
    assert "".join(part.choices[0].delta.content or "" for part in answered if part.choices) == CONTENT
    assert "".join(part.choices[0].delta.reasoning for part in thought) == REASONING


@pytest.mark.parametrize("name, path", [("responses-stream", "/v1/responses"), ("messages-stream", "/v1/messages")])
async def test_the_side_of_other_dialects_speaks_chat_too(name: str, path: str) -> None:
    recorded = load(f"vllm-0.32-cpu/{name}")
    async with flow(Script.of_recording(recorded)) as (worker, _), raw_client(worker.port) as client:
        await client.post({"model": "tiny", "stream": True}, path=path, headers=ASIDE)
        answer = await client.answer()
        seen = await got(worker.port, answer.headers[NAME])
    assert read_chat(seen.body).engine_text() == (REASONING, "")
    value = payloads(seen.body)[0][1]
    assert value["id"].encode() in recorded.body
    assert (value["object"], value["model"]) == ("chat.completion.chunk", "tiny")


@pytest.mark.parametrize(
    "name, path",
    [
        ("chat-nonstream", "/v1/chat/completions"),
        ("responses-nonstream", "/v1/responses"),
        ("messages-nonstream", "/v1/messages"),
    ],
)
async def test_a_whole_answer_has_its_reasoning_aside_too(name: str, path: str) -> None:
    recorded = load(f"vllm-0.32-cpu/{name}")
    async with flow(Script.of_recording(recorded)) as (worker, _), raw_client(worker.port) as client:
        await client.post({"model": "tiny"}, path=path, headers=ASIDE)
        answer = await client.answer()
        seen = await got(worker.port, answer.headers[NAME])
    assert read_chat(seen.body).engine_text() == (REASONING, "")
    assert payloads(seen.body)[0][1]["id"] == json.loads(recorded.body)["id"]


async def test_only_the_holder_of_the_same_key_reads_it() -> None:
    async with flow(Script.of_recording(STREAM)) as (worker, _), raw_client(worker.port) as client:
        await client.post(ASK, headers=ASIDE)
        path = (await client.answer()).headers[NAME]
        (stream,) = worker.sides._streams.values()
        stream.key_id = "somebody"
        seen = await got(worker.port, path)
        assert (seen.status, seen.error["code"]) == (404, "not_found")
        assert worker.sides.find(stream.id, "somebody") is stream


@pytest.mark.parametrize("path", ["0-" + "a" * 32, "7-" + "a" * 32])
async def test_an_id_that_nobody_was_given_is_a_404(path: str) -> None:
    async with flow() as (worker, _):
        seen = await got(worker.port, f"/v1/reasoning/{path}")
        assert (seen.status, seen.error["code"]) == (404, "not_found")
        assert (await got(worker.port, "/v1/reasoning/../models")).error["code"] == "unknown_endpoint"


async def test_it_is_gone_when_its_time_is_over() -> None:
    async with flow(Script.of_recording(STREAM), side=SidePolicy(keep_s=0.05)) as (worker, _):
        async with raw_client(worker.port) as client:
            await client.post(ASK, headers=ASIDE)
            path = (await client.answer()).headers[NAME]
        async with asyncio.timeout(10):
            while (await got(worker.port, path)).status == 200:
                pass
        worker.sides.sweep()
        assert worker.sides._streams == {}


async def test_what_does_not_fit_is_lost_from_its_beginning_and_said() -> None:
    events = [chunk(chat(reasoning=f"{number:04} ")) for number in range(100)]
    script = Script((HEAD, chunk(role()), *events, chunk(chat(finish="stop") + DONE), b"0\r\n\r\n"))
    async with flow(script, side=SidePolicy(buffer_bytes=2048)) as (worker, _), raw_client(worker.port) as client:
        await client.post(ASK, headers=ASIDE)
        seen = await got(worker.port, (await client.answer()).headers[NAME])
    text = read_chat(seen.body).reasoning[0]
    assert text.endswith("0098 0099 ")
    assert len(seen.body) < 2048 + 100
    assert seen.events[0].startswith(b": ")
    assert int(seen.events[0].split()[1]) == 100 - len(text.split())


async def test_a_reader_that_does_not_read_is_dropped_and_the_answer_never_waits() -> None:
    flood = chunk(chat(reasoning="x" * 60_000))
    gate = asyncio.Event()
    script = Script(
        (HEAD, chunk(role()), gate, *[flood] * 300, chunk(chat(content="y", finish="stop") + DONE), b"0\r\n\r\n")
    )
    async with (
        flow(script, side=SidePolicy(buffer_bytes=128 * 1024)) as (worker, _),
        raw_client(worker.port) as client,
        raw_client(worker.port) as reader,
    ):
        await client.post(ASK, headers=ASIDE)
        path = await head_of(client)
        (stream,) = worker.sides._streams.values()
        await get(reader, path)
        await until(lambda: len(stream._readers) == 1)
        reader.writer.transport.pause_reading()
        gate.set()
        assert read_chat((await client.answer()).body).engine_text() == ("", "y")
        reader.writer.transport.resume_reading()
        seen = await reader.answer()
    assert seen.whole
    assert seen.error["code"] == "reader_too_slow"
    assert len(seen.body) < 300 * 60_000
    assert seen.events[-1] == DONE


async def test_an_answer_that_breaks_off_ends_its_side_with_an_error() -> None:
    script = Script((HEAD, chunk(role()), chunk(chat(reasoning="half"))), End.RESET)
    async with flow(script) as (worker, _), raw_client(worker.port) as client:
        await client.post(ASK, headers=ASIDE)
        seen = await got(worker.port, (await client.answer()).headers[NAME])
    assert read_chat(seen.body).reasoning[0] == "half"
    assert seen.error["code"] == "backend_died"
    assert seen.events[-1] == DONE


async def test_a_request_that_fails_before_its_head_leaves_nothing_behind() -> None:
    async with flow(Script((), End.RESET)) as (worker, _), raw_client(worker.port) as client:
        await client.post(ASK, headers=ASIDE)
        answer = await client.answer()
        assert (answer.status, NAME in answer.headers) == (502, False)
        assert worker.sides._streams == {}


async def test_a_reader_that_leaves_is_forgotten() -> None:
    gate = asyncio.Event()
    script = Script((HEAD, chunk(role()), gate, chunk(chat(finish="stop") + DONE), b"0\r\n\r\n"))
    async with flow(script) as (worker, _), raw_client(worker.port) as client:
        await client.post(ASK, headers=ASIDE)
        path = await head_of(client)
        (stream,) = worker.sides._streams.values()
        async with raw_client(worker.port) as reader:
            await get(reader, path)
            await until(lambda: len(stream._readers) == 1)
        await until(lambda: not stream._readers)
        gate.set()
        assert (await client.answer()).whole


async def until(true: Any) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0)


async def test_with_no_place_left_the_oldest_ended_one_goes_and_else_it_is_a_429() -> None:
    endless = Script((HEAD, chunk(role())), End.HANG)
    async with (
        flow(Script.of_recording(STREAM), endless, side=SidePolicy(streams=1)) as (worker, _),
        raw_client(worker.port) as client,
        raw_client(worker.port) as second,
    ):
        await client.post(ASK, headers=ASIDE)
        ended = (await client.answer()).headers[NAME]
        await client.post(ASK, headers=ASIDE)
        await head_of(client)
        assert (await got(worker.port, ended)).status == 404
        await second.post(ASK, headers=ASIDE)
        refused = await second.answer()
        assert (refused.status, refused.error["code"]) == (429, "overloaded")


# --- several workers ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_workers(
    folder: Path, *scripts: Script, side: SidePolicy | None = None
) -> AsyncIterator[list[FakeWorker]]:
    async with (
        ScriptedBackend() as backend,
        running_worker(side_dir=str(folder)) as first,
        running_worker(side_dir=str(folder), slot=1) as second,
    ):
        for worker in (first, second):
            worker.serve([backend_view(backend.url)], policy=WorkerPolicy(side=side or SidePolicy()))
        backend.add(*scripts)
        yield [first, second]


async def test_another_worker_passes_a_reader_on_to_the_owner(tmp_path: Path) -> None:
    gate = asyncio.Event()
    rest = chunk(chat(reasoning="two") + chat(finish="stop") + DONE)
    script = Script((HEAD, chunk(role()), chunk(chat(reasoning="one ")), gate, rest, b"0\r\n\r\n"))
    async with two_workers(tmp_path, script) as (owner, other), raw_client(owner.port) as client:
        await client.post(ASK, headers=ASIDE)
        path = await head_of(client)
        async with raw_client(other.port) as reader:
            await get(reader, path)
            assert b"one " in (await reader.until(b"one ")).body
            gate.set()
            seen = await reader.answer()
            assert (seen.status, seen.whole) == (200, True)
            assert read_chat(seen.body).engine_text() == ("one two", "")
            assert seen.events[-1] == DONE
            await get(reader, path)  # the connection goes on
            assert read_chat((await reader.answer()).body).engine_text() == ("one two", "")
        (stream,) = owner.sides._streams.values()
        stream.key_id = "somebody"
        assert (await got(other.port, path)).status == 404


async def test_the_owner_forgets_a_reader_that_left_the_other_worker(tmp_path: Path) -> None:
    async with (
        two_workers(tmp_path, Script((HEAD, chunk(role())), End.HANG)) as (owner, other),
        raw_client(owner.port) as client,
    ):
        await client.post(ASK, headers=ASIDE)
        path = await head_of(client)
        (stream,) = owner.sides._streams.values()
        async with raw_client(other.port) as reader:
            await get(reader, path)
            await until(lambda: len(stream._readers) == 1)
        await until(lambda: not stream._readers)


async def test_a_slow_reader_at_another_worker_is_dropped_by_the_owner(tmp_path: Path) -> None:
    flood = chunk(chat(reasoning="x" * 60_000))
    gate = asyncio.Event()
    last = chunk(chat(content="y", finish="stop") + DONE)
    script = Script((HEAD, chunk(role()), gate, *[flood] * 500, last, b"0\r\n\r\n"))
    async with (
        two_workers(tmp_path, script, side=SidePolicy(buffer_bytes=128 * 1024)) as (owner, other),
        raw_client(owner.port) as client,
        raw_client(other.port) as reader,
    ):
        await client.post(ASK, headers=ASIDE)
        path = await head_of(client)
        (stream,) = owner.sides._streams.values()
        await get(reader, path)
        await until(lambda: len(stream._readers) == 1)
        reader.writer.transport.pause_reading()
        gate.set()
        assert read_chat((await client.answer()).body).engine_text() == ("", "y")
        assert stream._readers == []
        reader.writer.transport.resume_reading()
        seen = await reader.answer()
    assert (seen.whole, seen.error["code"]) == (True, "reader_too_slow")
    assert len(seen.body) < 500 * 60_000


async def test_an_owner_that_dies_is_told_by_an_error_and_one_that_is_gone_by_a_404(tmp_path: Path) -> None:
    async with two_workers(tmp_path, Script((HEAD, chunk(role()), chunk(chat(reasoning="a"))), End.HANG)) as (
        owner,
        other,
    ):
        async with raw_client(owner.port) as client, raw_client(other.port) as reader:
            await client.post(ASK, headers=ASIDE)
            path = await head_of(client)
            await get(reader, path)
            await reader.until(b'"a"')
            (stream,) = owner.sides._streams.values()
            for it in stream._readers:
                it._writer.transport.abort()
            seen = await reader.answer()
            assert (seen.whole, seen.error["code"]) == (True, "backend_died")
        owner.side_door.close()
        (tmp_path / "s0.sock").unlink(missing_ok=True)
        assert (await got(other.port, path)).status == 404


async def test_strangers_at_the_door_get_nothing(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (owner, _):
        for line in (b"\n", b"{}\n", b"x" * 100_000 + b"\n", b'{"side_id":"0-x","key_id":""}\n'):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s0.sock")
            writer.write(line)
            assert await reader.read() in (b"", b"-")
            writer.close()
        assert isinstance(owner.side_door, SideDoor)


async def test_two_real_workers_serve_one_side_stream(tmp_path: Path) -> None:
    async with ScriptedBackend() as backend, gateway(tmp_path, {"a": backend.url}, workers=2) as running:
        backend.add(Script.of_recording(STREAM))
        async with connection(running.clients) as client:
            await client.post(ASK, headers=ASIDE)
            answer = await client.answer()
        assert read_chat(answer.body).engine_text() == ("", CONTENT)
        for _ in range(12):  # some of these connections are the other worker's
            async with connection(running.clients) as reader:
                await get(reader, answer.headers[NAME])
                assert read_chat((await reader.answer()).body).engine_text() == (REASONING, "")
        assert {path.name for path in running.runtime_dir.glob("s*.sock")} == {"s0.sock", "s1.sock"}


@pytest.mark.parametrize("leaves", [False, True], ids=["patience ends", "reader leaves"])
async def test_a_sibling_that_does_not_answer_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    """A worker that hangs would else cost its sibling a descriptor for every reader."""
    monkeypatch.setattr(side_door, "ASK_S", 30.0 if leaves else 0.05)
    asked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    hung_up = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set_result(await reader.readline())
        await reader.read()
        hung_up.set()
        writer.close()

    async with running_worker(slot=0, side_dir=str(tmp_path)) as worker:
        server = await asyncio.start_unix_server(hang, tmp_path / "s1.sock")
        async with server, raw_client(worker.port) as client:
            await get(client, f"/v1/reasoning/1-{'a' * 32}")
            await until(asked.done)
            if leaves:
                client.writer.transport.abort()
            else:
                assert (await client.answer()).status == 404
            await until(hung_up.is_set)
