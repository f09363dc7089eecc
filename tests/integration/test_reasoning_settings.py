"""Every setting of reasoning delivery changes something: two values of each, and what a client sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.fakes.backend import End, Script
from tests.fakes.client import raw_client
from tests.fakes.setting_stage import Stage
from tests.integration.test_every_setting import WHOLE, Case, tried
from tests.integration.test_relay_endings import DONE, HEAD, HELLO, REQUEST, ROLE, STOP, chunk, event

pytestmark = pytest.mark.asyncio


async def _asked_as(stage: Stage, *events: bytes, path: str = "", mode: str = "") -> bytes:
    """The body of an answer that the backend makes of ``events``, or what is then read at the path in a header."""
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(Script((HEAD, chunk(b"".join([ROLE, *events, STOP, DONE])) + b"0\r\n\r\n")))
        await client.post(REQUEST, headers={"X-Gateway-Reasoning": mode} if mode else {})
        seen = await client.answer()
        if not path:
            return seen.body
        await client.send(f"GET {seen.headers[path]} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        return (await client.answer()).body


THOUGHT = event('"reasoning":"why"')


async def _default_mode(stage: Stage) -> object:
    return b'"reasoning":"why"' in await _asked_as(stage, THOUGHT, HELLO)


async def _split_tags(stage: Stage) -> object:
    body = await _asked_as(stage, event('"content":"<think>why</think>so"'))
    return b'"reasoning":"why"' in body


async def _tags_that_the_prompt_opened(stage: Stage) -> object:
    body = await _asked_as(stage, event('"content":"why</think>so"'))
    return b'"reasoning":"why"' in body


async def _kept_aside(stage: Stage) -> object:
    events = [event(f'"reasoning":"{number:04}"') for number in range(60)]
    body = await _asked_as(stage, *events, path="x-gateway-reasoning-stream", mode="side")
    return body.count(b'"reasoning"')


async def _places_aside(stage: Stage) -> object:
    """Status of a second answer with its reasoning aside while the first goes on."""
    async with stage.flow() as (backend, worker):
        backend.add(Script((HEAD, chunk(ROLE)), End.HANG), WHOLE)
        async with raw_client(worker.port) as first, raw_client(worker.port) as second:
            for client in (first, second):
                await client.post(REQUEST, headers={"X-Gateway-Reasoning": "side"})
                if client is first:
                    await client.until(ROLE)
            return (await second.answer()).status


async def _aside_after_ten_seconds(stage: Stage) -> object:
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(WHOLE)
        await client.post(REQUEST, headers={"X-Gateway-Reasoning": "side"})
        path = (await client.answer()).headers["x-gateway-reasoning-stream"]
        await asyncio.sleep(10)
        await client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        return (await client.answer()).status


REASONING_IN_REAL_TIME: Mapping[str, Case] = MappingProxyType(
    {
        "pools[].reasoning.mode": Case(_default_mode, {"default": True, "drop": False}),
        "pools[].reasoning.think_tags": Case(_split_tags, {False: False, True: True}),
        "pools[].reasoning.think_opened": Case(
            _tags_that_the_prompt_opened, {False: False, True: True}, also={"pools[].reasoning.think_tags": True}
        ),
        "pools[].reasoning.models[].model": Case(
            _default_mode, {"tiny": False, "other": True}, also={"pools[].reasoning.models": [{"mode": "drop"}]}
        ),
        "pools[].reasoning.models[].mode": Case(
            _default_mode, {"default": True, "drop": False}, also={"pools[].reasoning.models": [{"model": "tiny"}]}
        ),
        "pools[].reasoning.models[].think_tags": Case(
            _split_tags, {False: False, True: True}, also={"pools[].reasoning.models": [{"model": "tiny"}]}
        ),
        "pools[].reasoning.models[].think_opened": Case(
            _tags_that_the_prompt_opened,
            {False: False, True: True},
            also={"pools[].reasoning.models": [{"model": "tiny", "think_tags": True}]},
        ),
        "side.buffer_bytes": Case(_kept_aside, {"1 KiB": 6, "64 KiB": 60}),
        "side.streams": Case(_places_aside, {1: 429, 2: 200}),
    }
)

REASONING_IN_FAKE_TIME: Mapping[str, Case] = MappingProxyType(
    {"side.keep_s": Case(_aside_after_ten_seconds, {5: 404, 15: 200})}
)


@pytest.mark.parametrize("path", REASONING_IN_REAL_TIME)
async def test_a_setting_of_reasoning_changes_what_is_seen(path: str, tmp_path: Path) -> None:
    await tried(path, REASONING_IN_REAL_TIME[path], tmp_path)


@pytest.mark.looptime
@pytest.mark.parametrize("path", REASONING_IN_FAKE_TIME)
async def test_a_wait_of_reasoning_ends_when_its_setting_says(path: str, tmp_path: Path) -> None:
    await tried(path, REASONING_IN_FAKE_TIME[path], tmp_path)
