"""The two figures that fix what every rate means, through the whole request flow; and the example on the clients' page.

80 tokens a second of which half are thought: 80 while it thinks, 80 while the answer appears, 40 over all.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import recordings
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.client import raw_client
from tests.fakes.worker import backend_view, running_worker
from tests.integration.test_relay_endings import DONE, HEAD, REQUEST, ROLE, STOP, chunk, event

pytestmark = pytest.mark.asyncio

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]

STEP_S = 1 / 80
QUEUE_AND_PREFILL_S = 0.25
HALF = 256
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":21,"completion_tokens":512,"total_tokens":533,'
    b'"completion_tokens_details":{"reasoning_tokens":256}}}\n\n'
)


def _example(request_id: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [it["pacekeeper"] for it in EXAMPLES if "pacekeeper" in it]
    return next(report for report in found if report["request_id"] == request_id)


async def _open_at_pace(gates: list[asyncio.Event]) -> None:
    clock = asyncio.get_running_loop().time
    first = clock() + QUEUE_AND_PREFILL_S
    for number, gate in enumerate(gates):
        await asyncio.sleep(first + number * STEP_S - clock())
        gate.set()


@pytest.mark.looptime
async def test_80_tokens_a_second_of_which_half_are_seen_feel_like_40() -> None:
    thought, said = event('"reasoning":"hmm "'), event('"content":"well "')
    gates = [asyncio.Event() for _ in range(2 * HALF)]
    events = [ROLE + thought, *[thought] * (HALF - 1), *[said] * (HALF - 1), said + STOP + USAGE + DONE]
    pieces = [piece for gate, it in zip(gates, events, strict=True) for piece in (gate, chunk(it))]
    async with ScriptedBackend() as backend, running_worker(idle_s=1000) as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((HEAD, *pieces, b"0\r\n\r\n")))
        async with raw_client(worker.port) as client, asyncio.TaskGroup() as group:
            await client.post(REQUEST, headers={"X-Gateway-Metrics": "event", "X-Request-Id": "demo-1"})
            await backend.exchange(0)
            pace = group.create_task(_open_at_pace(gates))
            seen = await client.answer(timeout_s=100)
            await pace
        record = await worker.record()
    report = json.loads(seen.events[-2].removeprefix(b"data: "))["pacekeeper"]
    assert report["decode_tps"] == pytest.approx(80, rel=0.001)
    assert report["reasoning_tps"] == pytest.approx(80, rel=0.001)
    assert report["visible_tps"] == pytest.approx(80, rel=0.001)
    assert report["effective_visible_tps"] == pytest.approx(40, rel=0.005)
    shown = _example("demo-1")
    assert list(report) == list(shown)
    assert report.pop("request_id") == shown.pop("request_id")
    assert report == pytest.approx(shown, rel=0.001)
    assert record.summary is not None
    assert record.summary.effective_visible_tps == pytest.approx(report["effective_visible_tps"])


async def test_the_clients_page_shows_the_usage_of_an_answer_in_one_piece_as_it_comes() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script.of_recording(recordings.load("vllm-0.32-cpu/chat-nonstream")))
        async with raw_client(worker.port) as client:
            await client.post({"model": "tiny"}, headers={"X-Gateway-Metrics": "usage", "X-Request-Id": "demo-2"})
            usage = json.loads((await client.answer()).body)["usage"]
    assert usage in EXAMPLES
