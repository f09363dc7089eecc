"""A key that is revoked, with three workers: nothing new comes in anywhere, and what is open ends as it would have."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway import aio
from gateway.control.keysfile import replace_file
from gateway.settings.keys import write_keys
from tests.fakes.backend import Script
from tests.fakes.client import Answer
from tests.fakes.engine_events import DONE, chat, role, usage
from tests.fakes.gateway_process import GatewayProcess, connection
from tests.fakes.paced_engine import request
from tests.integration.test_gateway_keys import REVOKED_WITHIN_S, key, keyed, secret, status_of
from tests.integration.test_relay_endings import HEAD, chunk

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]  # whole gateways, on machines that have much else to do

EVERY_WORKER = 20
"""So many fresh connections in a row miss one of three workers but once in a thousand times."""


async def stream(running: GatewayProcess, name: str, begun: asyncio.Event) -> Answer:
    async with connection(running.clients) as client:
        headers = {"Authorization": f"Bearer {secret(name)}"}
        await client.post(request("r", stream=True, tokens=1), headers=headers)
        await client.until(b"data:")
        begun.set()
        return await client.answer(timeout_s=50)


async def test_nothing_new_comes_in_at_any_worker_and_open_streams_end_whole(tmp_path: Path) -> None:
    async with keyed(tmp_path, key("alice"), key("bob"), workers=3) as (engine, running):
        go_on = asyncio.Event()
        rest = chunk(chat(content="late") + chat(finish="stop") + usage(9) + DONE)
        engine.backend.add(*[Script((HEAD, chunk(role()), go_on, rest, b"0\r\n\r\n"))] * 12)
        names = ["alice"] * 9 + ["bob"] * 3
        begun = [asyncio.Event() for _ in names]
        streams = [aio.spawn(stream(running, *given), name=given[0]) for given in zip(names, begun, strict=True)]
        for event in begun:
            await event.wait()
        loop = asyncio.get_running_loop()
        replace_file(tmp_path / "keys.json", write_keys([key("alice", revoked_wall=1.0), key("bob")]))
        revoked_at = loop.time()
        await running.event("keys.loaded", within_s=REVOKED_WITHIN_S, changes="alice: revoked")

        async def is_out_everywhere() -> bool:
            statuses = {await status_of(running, "alice") for _ in range(EVERY_WORKER)}
            assert statuses <= {200, 401, 429}
            return 200 not in statuses

        await running.until(is_out_everywhere, "no worker lets it in", within_s=REVOKED_WITHIN_S)
        assert loop.time() - revoked_at < REVOKED_WITHIN_S
        assert {await status_of(running, "bob") for _ in range(EVERY_WORKER)} == {200}
        assert not any(task.done() for task in streams)
        go_on.set()
        for answer in await asyncio.gather(*streams):
            assert (answer.status, answer.whole) == (200, True)
            assert b"late" in answer.body
            assert answer.body.endswith(DONE)

        def all_told() -> bool:
            return len(running.events("request.settled", outcome="ok", key_id="alice", stream="True")) == 9

        await running.until(all_told, "each has its record, and is the key's")
