"""The mode of reasoning that a key has by default: under the header, over the model's, on every API, at any worker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.control.keysfile import replace_file
from gateway.core.admission.keys import Key, KeyDefaults, digest_of
from gateway.core.routing.snapshot import PoolView
from gateway.core.stream.delivery.mode import Delivery, ReasoningPolicy
from gateway.core.stream.summary import Flag
from gateway.settings.keys import write_keys
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.client import Answer, RawClient, raw_client
from tests.fakes.delivered import read_chat, read_chat_body, read_typed
from tests.fakes.gateway_process import connection, gateway
from tests.fakes.recordings import load
from tests.fakes.worker import FakeWorker, backend_view, running_worker

pytestmark = pytest.mark.asyncio

RECORDED = "vllm-0.32-cpu"
APIS = {
    "chat": ("/v1/chat/completions", "chat-stream-include-usage", "chat-nonstream"),
    "responses": ("/v1/responses", "responses-stream", "responses-nonstream"),
    "messages": ("/v1/messages", "messages-stream", "messages-nonstream"),
}
ASIDE = "x-gateway-reasoning-stream"
Read = tuple[str, str]
"""Reasoning and content."""


def key(name: str, mode: Delivery | None = None) -> Key:
    return Key(id=name, digest=digest_of(f"pk-{name}"), defaults=KeyDefaults(reasoning=mode))


def recorded(api: str, *, stream: bool) -> Any:
    return load(f"{RECORDED}/{APIS[api][1 if stream else 2]}")


def read(api: str, body: bytes, *, stream: bool) -> Read:
    """What a client finds in an answer."""
    if api == "chat":
        return (read_chat(body) if stream else read_chat_body(body)).engine_text()
    if stream:
        return read_typed(body).engine_text()
    value = json.loads(body)
    if api == "messages":
        blocks = value["content"]
        thought = "".join(it.get("thinking", "") for it in blocks)
        return thought, "".join(it["text"] for it in blocks if it["type"] == "text")
    texts = {"reasoning": "", "message": ""}
    for item in value["output"]:
        texts[item["type"]] += "".join(part["text"] for part in item["content"])
    return texts["reasoning"], texts["message"]


def engine_s(api: str, *, stream: bool) -> Read:
    """What the engine sent."""
    found = read(api, recorded(api, stream=stream).body, stream=stream)
    assert all(found), "the recording has reasoning and content"
    return found


@asynccontextmanager
async def two_workers(
    folder: Path, *keys: Key, model: Delivery | None = None
) -> AsyncIterator[tuple[ScriptedBackend, list[FakeWorker]]]:
    """Two workers with keys in front of one backend; ``model``: what its pool does by default."""
    async with (
        ScriptedBackend() as backend,
        running_worker(side_dir=str(folder), with_keys=True) as first,
        running_worker(side_dir=str(folder), with_keys=True, slot=1) as second,
    ):
        pool = PoolView(name="main", reasoning=ReasoningPolicy(mode=model))
        for worker in (first, second):
            worker.serve([backend_view(backend.url)], pools=[pool])
            worker.know(*keys)
        yield backend, [first, second]


async def say(client: RawClient, api: str, name: str, *, stream: bool, header: str = "") -> Answer:
    headers = {"Authorization": f"Bearer pk-{name}"} | ({"X-Gateway-Reasoning": header} if header else {})
    body = {"model": "tiny", "messages": [], "input": "x", "stream": stream}
    await client.post(body, path=APIS[api][0], headers=headers)
    return await client.answer()


async def asked(
    backend: ScriptedBackend, worker: FakeWorker, api: str, name: str, *, stream: bool, header: str = ""
) -> Answer:
    backend.add(Script.of_recording(recorded(api, stream=stream)))
    async with raw_client(worker.port) as client:
        return await say(client, api, name, stream=stream, header=header)


async def aside(worker: FakeWorker, name: str, path: str) -> Answer:
    async with raw_client(worker.port) as client:
        line = f"Authorization: Bearer pk-{name}\r\n" if name else ""
        await client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n{line}\r\n".encode())
        return await client.answer()


def delivered(mode: Delivery, api: str, engine: Read) -> Read:
    """What is to be found in an answer that is delivered so; Responses and Messages have no tags."""
    thought, said = engine
    match mode:
        case Delivery.DROP | Delivery.SIDE:
            return "", said
        case Delivery.TAGS if api == "chat":
            return "", f"<think>{thought}</think>{said}"
        case _:
            return engine


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("mode", [Delivery.PASS, Delivery.DROP, Delivery.TAGS, Delivery.SIDE])
async def test_a_key_s_default_holds_on_every_api_and_at_any_worker(
    mode: Delivery, api: str, stream: bool, tmp_path: Path
) -> None:
    engine = engine_s(api, stream=stream)
    async with two_workers(tmp_path, key("alice", mode), key("plain")) as (backend, workers):
        for at, worker in enumerate(workers):
            seen = await asked(backend, worker, api, "alice", stream=stream)
            assert (seen.status, read(api, seen.body, stream=stream)) == (200, delivered(mode, api, engine))
            summary = (await worker.record()).summary
            assert summary is not None
            assert summary.completion_tokens, "the counts are the engine's whatever is delivered"
            assert Flag.REASONING_HIDDEN not in summary.flags
            plain = await asked(backend, worker, api, "plain", stream=stream)
            assert read(api, plain.body, stream=stream) == engine, "of another key nothing changes"
            if mode is not Delivery.SIDE:
                assert ASIDE not in seen.headers
                continue
            for reader in workers:  # its own worker and the other one
                thought = await aside(reader, "alice", seen.headers[ASIDE])
                assert read_chat(thought.body).engine_text() == (engine[0], "")
                assert (await aside(reader, "plain", seen.headers[ASIDE])).status == 404
                assert (await aside(reader, "", seen.headers[ASIDE])).status == 401
            assert seen.headers[ASIDE].startswith(f"/v1/reasoning/{at}-")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("header", [Delivery.PASS, Delivery.DROP, Delivery.SIDE])
@pytest.mark.parametrize("mode", [Delivery.PASS, Delivery.DROP, Delivery.SIDE])
async def test_the_header_goes_before_the_key_s_default(
    mode: Delivery, header: Delivery, api: str, stream: bool, tmp_path: Path
) -> None:
    engine = engine_s(api, stream=stream)
    async with two_workers(tmp_path, key("alice", mode), model=Delivery.DROP) as (backend, workers):
        for worker in workers:
            seen = await asked(backend, worker, api, "alice", stream=stream, header=header)
            assert read(api, seen.body, stream=stream) == delivered(header, api, engine)
            assert (ASIDE in seen.headers) is (header is Delivery.SIDE)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("api", APIS)
async def test_the_key_s_default_goes_before_the_model_s(api: str, stream: bool, tmp_path: Path) -> None:
    engine = engine_s(api, stream=stream)
    keys = key("shown", Delivery.PASS), key("aside", Delivery.SIDE), key("silent")
    async with two_workers(tmp_path, *keys, model=Delivery.DROP) as (backend, workers):
        for worker in workers:
            for name, expected in (("shown", engine), ("aside", ("", engine[1])), ("silent", ("", engine[1]))):
                seen = await asked(backend, worker, api, name, stream=stream)
                assert read(api, seen.body, stream=stream) == expected, name
                assert (ASIDE in seen.headers) is (name == "aside")


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_a_default_that_is_not_possible_gives_way_to_the_model_s(api: str, tmp_path: Path) -> None:
    engine = engine_s(api, stream=True)
    async with two_workers(tmp_path, key("alice", Delivery.TAGS), model=Delivery.DROP) as (backend, (worker, _)):
        seen = await asked(backend, worker, api, "alice", stream=True)
        assert read(api, seen.body, stream=True) == ("", engine[1])
        refused = await asked(backend, worker, api, "alice", stream=True, header="tags")
        assert refused.status == 400, "what the client itself asks for must be possible"


async def test_a_default_that_changes_holds_from_the_next_request_on(tmp_path: Path) -> None:
    engine = engine_s("chat", stream=True)
    async with two_workers(tmp_path, key("alice", Delivery.DROP)) as (backend, workers):
        for mode, expected in ((Delivery.DROP, ("", engine[1])), (None, engine)):
            for worker in workers:
                worker.know(key("alice", mode))
                seen = await asked(backend, worker, "chat", "alice", stream=True)
                assert read("chat", seen.body, stream=True) == expected


@pytest.mark.timeout(180)
async def test_two_real_workers_pass_a_reader_on_by_the_key_s_default_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    replace_file(path, write_keys([key("alice", Delivery.SIDE), key("bob")]))
    auth = {"clients": "keys", "keys_file": str(path)}
    engine = engine_s("chat", stream=True)
    async with (
        ScriptedBackend() as backend,
        gateway(tmp_path, {"a": backend.url}, workers=2, auth=auth) as running,
    ):
        backend.add(Script.of_recording(recorded("chat", stream=True)))
        async with connection(running.clients) as client:
            seen = await say(client, "chat", "alice", stream=True)
        assert read("chat", seen.body, stream=True) == ("", engine[1])

        async def got(name: str) -> Answer:
            async with connection(running.clients) as client:
                line = f"x-api-key: pk-{name}\r\n"
                await client.send(f"GET {seen.headers[ASIDE]} HTTP/1.1\r\nHost: g\r\n{line}\r\n".encode())
                return await client.answer()

        for _ in range(8):  # some of these connections are the other worker's
            assert read_chat((await got("alice")).body).engine_text() == (engine[0], "")
            assert (await got("bob")).status == 404
