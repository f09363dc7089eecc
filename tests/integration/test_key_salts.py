"""`cache_salt` by key: in the body of every API that vLLM takes one on, the key's own, and nowhere else."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.control.keysfile import replace_file
from gateway.core.admission.keys import Key, digest_of, salt_of
from gateway.settings.keys import write_keys
from tests.fakes.backend import Request, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.gateway_process import connection, gateway
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_gateway_keys import written

pytestmark = pytest.mark.asyncio

PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/pooling",
    "/classify",
    "/score",
    "/rerank",
)
ASK: dict[str, Any] = {"model": "tiny", "messages": [], "prompt": "x", "input": "x"}


def key(name: str, *, salt: bool = True) -> Key:
    return Key(id=name, digest=digest_of(f"pk-sentinel-{name}"), cache_salt=salt)


ALICE, BOB, PLAIN = key("alice"), key("bob"), key("plain", salt=False)


def answering(_: Request) -> Script:
    return Script((answer(b'{"id":"c","object":"x","choices":[],"data":[],"status":"completed","content":[]}'),))


@asynccontextmanager
async def salted() -> AsyncIterator[tuple[ScriptedBackend, FakeWorker]]:
    async with ScriptedBackend(answerer=answering) as backend, running_worker(with_keys=True) as worker:
        worker.serve([backend_view(backend.url)])
        worker.know(ALICE, BOB, PLAIN)
        yield backend, worker


async def ask(worker: FakeWorker, name: str, path: str = PATHS[0], **fields: Any) -> Answer:
    async with raw_client(worker.port) as client:
        headers = {"Authorization": f"Bearer pk-sentinel-{name}"}
        await client.post({**ASK, **fields}, path=path, headers=headers)
        return await client.answer()


def salts(backend: ScriptedBackend) -> list[object]:
    """What each request had for a salt when it came to the backend."""
    return [json.loads(it.request.body).get("cache_salt") for it in backend.exchanges]


@pytest.mark.parametrize("path", PATHS)
async def test_every_api_has_the_key_s_own_salt_whole_and_as_a_stream(path: str) -> None:
    async with salted() as (backend, worker):
        for stream in (False, True):
            for name in ("alice", "bob", "plain"):
                await ask(worker, name, path, stream=stream)
        assert salts(backend) == [salt_of(ALICE, given=""), salt_of(BOB, given=""), None] * 2


async def test_a_client_s_own_salt_divides_its_prompts_and_reaches_nobody_else_s() -> None:
    async with salted() as (backend, worker):
        alice_s = salt_of(ALICE, given="")
        for given in ("mine", alice_s, "", 7, None, "a" * 500, "x@/\\\0y"):
            assert (await ask(worker, "bob", cache_salt=given)).status < 500
        found = salts(backend)
        assert alice_s not in found
        assert found[0] == salt_of(BOB, given="mine")
        assert found[2:5] == [salt_of(BOB, given="")] * 3, "what is no salt is as none"
        assert len(set(found)) == 5
        assert all(isinstance(it, str) and len(it) == 64 and it.isalnum() for it in found)


async def test_a_key_that_does_not_ask_for_one_sends_what_the_client_says() -> None:
    async with salted() as (backend, worker):
        await ask(worker, "plain", cache_salt="mine")
        assert salts(backend) == ["mine"]


async def test_it_stands_in_no_log_record_message_or_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with salted() as (_, worker):
        seen = [await ask(worker, "alice", path, cache_salt="sentinel-of-the-client") for path in PATHS]
        texts = [it.body + str(it.headers).encode() for it in seen]
        texts += [msgspec.msgpack.encode(worker.records), msgspec.msgpack.encode(worker.gate.claims())]
        assert len(worker.records) == len(PATHS)
    texts.append(caplog.text.encode())
    secrets = (salt_of(ALICE, given=""), salt_of(ALICE, given="sentinel-of-the-client"), "sentinel-of-the-client")
    assert not any(secret.encode() in text for secret in secrets for text in texts)


@pytest.mark.timeout(180)
async def test_it_is_the_same_at_every_worker_and_after_a_restart_and_is_written_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    replace_file(path, write_keys([ALICE, BOB]))
    settings: dict[str, Any] = {"auth": {"clients": "keys", "keys_file": str(path)}}
    files: list[bytes] = []
    async with ScriptedBackend(answerer=answering) as backend:
        for _ in range(2):
            async with gateway(tmp_path, {"a": backend.url}, workers=2, **settings) as running:
                for name in ("alice", "bob") * 4:
                    async with connection(running.clients) as client:
                        headers = {"x-api-key": f"pk-sentinel-{name}"}
                        await client.post({"model": "tiny", "messages": []}, headers=headers)
                        assert (await client.answer()).status == 200
                files += [running.raw, *written(tmp_path)]
        found = salts(backend)
    mine = [salt_of(ALICE, given=""), salt_of(BOB, given="")]
    assert found == mine * 8
    assert not any(salt.encode() in text for salt in mine for text in files)
