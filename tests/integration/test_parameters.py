"""Every setting of ``parameters`` at two values, from the file to the client; and the two that go with owned responses.

What each rule does in full is in tests/unit/core/request; here is that the setting reaches the request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import End, Script, answer
from tests.fakes.client import raw_client
from tests.fakes.setting_stage import Stage

pytestmark = pytest.mark.asyncio

ASK: dict[str, Any] = {"model": "tiny", "messages": []}
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/a.png"}}]}]
DEEP = {"a": {"b": {"c": []}}}

TRIED: Mapping[str, tuple[Mapping[str, Any], Any, Any]] = {
    "parameters.n": ({"n": 3}, 3, 2),
    "parameters.best_of": ({"best_of": 3}, 3, 2),
    "parameters.max_tokens": ({"max_tokens": 300}, 0, 299),
    "parameters.logprobs": ({"logprobs": True, "top_logprobs": 3}, 3, 2),
    "parameters.prompt_logprobs": ({"prompt_logprobs": 1}, 1, 0),
    "parameters.priority": ({"priority": 1}, True, False),
    "parameters.background": ({"background": True}, True, False),
    "parameters.chat_template": ({"chat_template": "{{ x }}"}, True, False),
    "parameters.processor_kwargs": ({"mm_processor_kwargs": {"a": 1}}, True, False),
    "parameters.transfer_params": ({"kv_transfer_params": {"a": 1}}, True, False),
    "parameters.embeds": ({"prompt_embeds": "AAAA"}, True, False),
    "parameters.remote_media": ({"messages": IMAGE}, True, False),
    "parameters.json_depth": ({"metadata": DEEP}, 5, 4),
    "parameters.json_values": ({"metadata": {str(at): at for at in range(100)}}, 200, 100),
}
"""By setting: what a request says, a value that allows it, a value that does not."""


async def _asked(stage: Stage, fields: Mapping[str, Any]) -> tuple[int, str]:
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(Script((answer(b"{}"),)))
        await client.post({**ASK, **fields})
        seen = await client.answer()
        reached = len(backend.exchanges)
        assert (seen.status == 200) is (reached == 1)
        return seen.status, "" if reached else seen.error["message"]


@pytest.mark.parametrize("path", TRIED)
async def test_a_parameter_s_setting_decides(path: str, tmp_path: Path) -> None:
    fields, allowing, refusing = TRIED[path]
    assert await _asked(Stage(tmp_path, {path: allowing}), fields) == (200, "")
    status, message = await _asked(Stage(tmp_path, {path: refusing}), fields)
    assert status == 400
    assert path in message


@pytest.mark.looptime
@pytest.mark.parametrize("owner_s", [3, 7])
async def test_backends_are_asked_for_a_response_for_owner_s(owner_s: int, tmp_path: Path) -> None:
    async with Stage(tmp_path, {"timers.owner_s": owner_s}).flow() as (backend, worker):
        backend.add(Script((), End.HANG))
        begun = asyncio.get_running_loop().time()
        async with raw_client(worker.port) as client:
            await client.send(b"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: g\r\n\r\n")
            assert (await client.answer(timeout_s=10_000)).status == 503
        assert round(asyncio.get_running_loop().time() - begun) == owner_s


@pytest.mark.parametrize("owned_responses,questions", [(1, 1), (2, 0)])
async def test_so_many_owned_responses_are_remembered(owned_responses: int, questions: int, tmp_path: Path) -> None:
    async with Stage(tmp_path, {"limits.owned_responses": owned_responses}).flow() as (backend, worker):
        async with raw_client(worker.port) as client:
            for thing in ("resp_1", "resp_2"):
                backend.add(Script((answer(json.dumps({"id": thing, "status": "completed"}).encode()),)))
                await client.post({"model": "tiny", "input": "a"}, path="/v1/responses")
                assert (await client.answer()).status == 200
            for _ in range(questions + 1):
                backend.add(Script((answer(b'{"id":"resp_1"}'),)))
            await client.send(b"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: g\r\n\r\n")
            assert (await client.answer()).status == 200
        assert len(backend.exchanges) == 3 + questions
