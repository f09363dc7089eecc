"""Usage is asked for on the client's behalf and taken out again; the numbers are added only when asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.stream.summary import Outcome
from tests.fakes import recordings
from tests.fakes.backend import Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.worker import backend_view, running_worker

pytestmark = pytest.mark.asyncio

RECORDED = "vllm-0.32-cpu/chat-stream-include-usage"
ASKING: dict[str, Any] = {"model": "tiny", "stream": True, "messages": []}


async def _stream(cuts: list[int], body: dict[str, Any], headers: dict[str, str]) -> tuple[Answer, dict[str, Any]]:
    """The client's view of the recorded stream, and the body that the backend was asked with."""
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script.of_recording(recordings.load(RECORDED), cuts=cuts))
        async with raw_client(worker.port) as client:
            await client.post(body, headers=headers)
            seen = await client.answer()
        record = await worker.record()
        assert record.outcome is Outcome.OK
        assert record.summary is not None
        assert record.summary.completion_tokens == (recordings.load(RECORDED).last_usage or {})["completion_tokens"]
        asked: dict[str, Any] = json.loads((await backend.exchange(0)).request.body)
        return seen, asked


def _without_usage(body: bytes) -> bytes:
    return b"".join(e + b"\n\n" for e in body.split(b"\n\n") if e and b'"choices":[]' not in e)


def _as_if_unasked(body: bytes) -> bytes:
    """What vLLM sends to a client that asks for no usage: the fingerprint is on the event with the finish reason."""
    usage = next(e for e in body.split(b"\n\n") if b'"choices":[]' in e)
    mark = b',"system_fingerprint":' + json.dumps(json.loads(usage[6:])["system_fingerprint"]).encode()
    finish = next(e for e in body.split(b"\n\n") if b'"finish_reason":"' in e)
    return _without_usage(body).replace(finish, finish[:-1] + mark + b"}")


cuts_of_stream = st.lists(st.integers(0, len(recordings.load(RECORDED).raw)), max_size=10)
many = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@given(cuts=cuts_of_stream)
@many
async def test_usage_that_the_client_did_not_ask_for_is_not_seen(cuts: list[int]) -> None:
    seen, asked = await _stream(cuts, ASKING, {})
    assert asked["stream_options"] == {"include_usage": True}
    assert seen.body == _as_if_unasked(recordings.load(RECORDED).body)
    assert seen.whole


@given(cuts=cuts_of_stream)
@many
async def test_usage_that_the_client_asked_for_is_untouched(cuts: list[int]) -> None:
    seen, asked = await _stream(cuts, {**ASKING, "stream_options": {"include_usage": True}}, {})
    assert asked["stream_options"] == {"include_usage": True}
    assert seen.body == recordings.load(RECORDED).body


@given(cuts=cuts_of_stream)
@many
async def test_the_report_comes_inside_the_usage_event(cuts: list[int]) -> None:
    seen, _ = await _stream(cuts, ASKING, {"X-Gateway-Metrics": "usage"})
    usage_events = [json.loads(e[6:]) for e in seen.events if b'"choices":[]' in e]
    assert len(usage_events) == 1
    report = usage_events[0]["usage"].pop("pacekeeper")
    assert report["completion_tokens"] == usage_events[0]["usage"]["completion_tokens"]
    assert report["reasoning_tokens"] > 0
    recorded = [json.loads(e[6:]) for e in recordings.load(RECORDED).body.split(b"\n\n") if b'"choices":[]' in e]
    assert usage_events == recorded
    assert _without_usage(seen.body) == _without_usage(recordings.load(RECORDED).body)


@given(cuts=cuts_of_stream)
@many
async def test_the_report_comes_as_the_last_event_before_the_marker(cuts: list[int]) -> None:
    seen, _ = await _stream(cuts, ASKING, {"X-Gateway-Metrics": "event"})
    assert seen.events[-1] == b"data: [DONE]\n\n"
    added = json.loads(seen.events[-2][6:])
    first = json.loads(seen.events[0][6:])
    assert {k: added[k] for k in ("id", "object", "created", "model")} == {
        k: first[k] for k in ("id", "object", "created", "model")
    }
    assert added["choices"] == []
    assert added["pacekeeper"]["completion_tokens"] > 0
    others = [e for e in seen.events if b"pacekeeper" not in e]
    assert b"".join(others) == _as_if_unasked(recordings.load(RECORDED).body)


@pytest.mark.parametrize(
    "given_options, sent",
    [
        (None, {"include_usage": True}),
        ({}, {"include_usage": True}),
        ({"include_usage": False}, {"include_usage": True}),
        ({"continuous_usage_stats": True, "x": 1}, {"x": 1, "include_usage": True}),
        ("text", "text"),
    ],
)
async def test_stream_options_keep_what_else_is_in_them(given_options: object, sent: object) -> None:
    _, asked = await _stream([], {**ASKING, "stream_options": given_options}, {})
    assert asked["stream_options"] == sent


@pytest.mark.parametrize("stream", [False, None, "no"])
async def test_nothing_is_injected_where_no_stream_is_asked_for(stream: object) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(b"{}"),)))
        async with raw_client(worker.port) as client:
            await client.post({"model": "tiny", "stream": stream})
            await client.answer()
        assert "stream_options" not in json.loads((await backend.exchange(0)).request.body)


async def test_a_whole_answer_carries_the_report_and_the_times_when_asked() -> None:
    recorded = recordings.load("vllm-0.32-cpu/chat-nonstream")
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script.of_recording(recorded), Script.of_recording(recorded))
        async with raw_client(worker.port) as client:
            await client.post({"model": "tiny"}, headers={"X-Gateway-Metrics": "usage"})
            asked = await client.answer()
            await client.post({"model": "tiny"})
            unasked = await client.answer()
    body = json.loads(asked.body)
    report = body["usage"].pop("pacekeeper")
    assert body == json.loads(recorded.body)
    assert report["completion_tokens"] == body["usage"]["completion_tokens"]
    assert "backend;dur=" in asked.headers["server-timing"]
    assert unasked.body == recorded.body
    assert "server-timing" not in unasked.headers


async def test_an_unknown_metrics_mode_is_a_clear_400() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            await client.post(ASKING, headers={"X-Gateway-Metrics": "all"})
            seen = await client.answer()
    assert (seen.status, seen.error["param"]) == (400, "X-Gateway-Metrics")
    assert backend.exchanges == []
