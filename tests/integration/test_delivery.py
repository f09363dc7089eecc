"""Reasoning as the client wants it, over real sockets: openai-python and raw clients, each mode, defaults, refusals."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import openai
import pytest

from gateway.core.routing.snapshot import LimitPolicy, PoolView, WorkerPolicy
from gateway.core.stream.delivery.mode import Delivery, ReasoningPolicy, ThinkTags
from gateway.core.stream.summary import Exactness, Outcome
from gateway.proxy.relay import StreamRelay
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.delivered import inlined, payloads, read_chat, read_chat_body, read_typed
from tests.fakes.engine_events import DONE, chat, role, usage
from tests.fakes.recordings import load
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_relay_endings import HEAD, chunk

pytestmark = pytest.mark.asyncio

STREAM = load("vllm-0.32-cpu/chat-stream-include-usage")
WHOLE = load("vllm-0.32-cpu/chat-nonstream")
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello there"}]}
REASONING, CONTENT = read_chat(STREAM.body).engine_text()
MODES = [mode for mode in Delivery if mode is not Delivery.PASS]


@asynccontextmanager
async def flow(
    *scripts: Script, reasoning: ReasoningPolicy | None = None, policy: WorkerPolicy | None = None
) -> AsyncIterator[FakeWorker]:
    """A worker in front of a backend that plays ``scripts``; ``reasoning`` is what the settings say of its pool."""
    async with ScriptedBackend() as backend, running_worker() as worker:
        pool = PoolView(name="main", reasoning=reasoning or ReasoningPolicy())
        worker.serve([backend_view(backend.url)], pools=[pool], policy=policy)
        backend.add(*scripts)
        yield worker


@asynccontextmanager
async def sdk(worker: FakeWorker, mode: Delivery) -> AsyncIterator[openai.AsyncOpenAI]:
    """openai-python at the worker, asking for ``mode`` with every request."""
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{worker.port}/v1",
        api_key="unused",
        max_retries=0,
        timeout=20.0,
        default_headers={"X-Gateway-Reasoning": mode},
    ) as client:
        yield client


async def posted(
    worker: FakeWorker, body: dict[str, Any], *, path: str = "/v1/chat/completions", **headers: str
) -> Answer:
    async with raw_client(worker.port) as client:
        await client.post(body, path=path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return await client.answer()


def stream_of(*events: bytes) -> Script:
    return Script((HEAD, *[chunk(event) for event in events], b"0\r\n\r\n"))


# --- pass ---------------------------------------------------------------------------------------------------------


async def test_pass_runs_no_delivery_code_and_keeps_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: set[str] = set()
    slow: list[bytes] = []
    take = StreamRelay._take

    def noted(relay: StreamRelay, data: bytes, now: float) -> None:
        slow.append(data)
        take(relay, data, now)

    def profile(frame: FrameType, *_: object) -> None:
        ran.add(frame.f_code.co_filename.rpartition("/gateway/")[2])

    async def asked(worker: FakeWorker, **headers: str) -> bytes:
        slow.clear()
        ran.clear()
        sys.setprofile(profile)
        try:
            body = {**ASK, "stream": True, "stream_options": {"include_usage": True}}
            return (await posted(worker, body, **headers)).body
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(StreamRelay, "_take", noted)
    deltas = [chat(content=f"word {number}") for number in range(50)]
    async with flow(*[stream_of(role(), *deltas, chat(finish="stop"), DONE)] * 3) as worker:
        for headers in ({}, {"X_Gateway_Reasoning": "pass"}):
            assert await asked(worker, **headers) == b"".join([role(), *deltas, chat(finish="stop"), DONE])
            assert sum(data.count(b"word") for data in slow) < 25, "but for reads that come together, the plain path"
            assert "proxy/relay.py" in ran
            assert {name for name in ran if "/delivery/" in name} <= {"core/stream/delivery/mode.py"}
        await asked(worker, X_Gateway_Reasoning="drop")
        assert "core/stream/delivery/delivered.py" in ran, "the search itself works"


async def test_pass_is_byte_identical_for_streams_and_bodies() -> None:
    async with flow(Script.of_recording(STREAM), Script.of_recording(WHOLE)) as worker:
        body = {**ASK, "stream": True, "stream_options": {"include_usage": True}}
        assert (await posted(worker, body, X_Gateway_Reasoning="pass")).body == STREAM.body
        assert (await posted(worker, ASK, X_Gateway_Reasoning="pass")).body == WHOLE.body


# --- openai-python ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Delivery))
async def test_openai_python_streams_every_mode(mode: Delivery) -> None:
    reasoning = {"reasoning": "", "reasoning_content": ""}
    content, ends, counts = "", [], []
    async with flow(Script.of_recording(STREAM)) as worker, sdk(worker, mode) as client:
        stream = await client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
        async for part in stream:
            counts += [part.usage.completion_tokens] if part.usage else []
            for choice in part.choices:
                content += choice.delta.content or ""
                ends += [choice.finish_reason] if choice.finish_reason else []
                for name in reasoning:
                    reasoning[name] += getattr(choice.delta, name, None) or ""
        record = await worker.record()
    assert (ends, counts) == (["stop"], [83])
    assert (record.outcome, record.summary and record.summary.reasoning_tokens) == (Outcome.OK, 40)
    assert (reasoning["reasoning"], reasoning["reasoning_content"], content) == expected(mode)


def expected(mode: Delivery) -> tuple[str, str, str]:
    """What a client that reads both names finds: reasoning, reasoning_content, content."""
    match mode:
        case Delivery.PASS | Delivery.REASONING | Delivery.EVENTS:
            return REASONING, "", CONTENT
        case Delivery.REASONING_CONTENT:
            return "", REASONING, CONTENT
        case Delivery.BOTH:
            return REASONING, REASONING, CONTENT
        case Delivery.DROP | Delivery.SIDE:
            return "", "", CONTENT
        case Delivery.TAGS:
            return "", "", f"<think>{REASONING}</think>{CONTENT}"


@pytest.mark.parametrize("mode", [mode for mode in Delivery if mode is not Delivery.EVENTS])
async def test_openai_python_gets_whole_answers_in_every_mode(mode: Delivery) -> None:
    async with flow(Script.of_recording(WHOLE)) as worker, sdk(worker, mode) as client:
        seen = await client.chat.completions.create(**ASK)
    message = seen.choices[0].message
    found = [getattr(message, name, None) or "" for name in ("reasoning", "reasoning_content")]
    assert (*found, message.content) == expected(mode)
    assert (seen.choices[0].finish_reason, seen.usage and seen.usage.completion_tokens) == ("stop", 83)


@pytest.mark.parametrize("mode", [Delivery.DROP, Delivery.SIDE])
async def test_openai_python_puts_a_response_without_its_reasoning_together(mode: Delivery) -> None:
    recorded = load("vllm-0.32-cpu/responses-stream")
    async with flow(Script.of_recording(recorded)) as worker, sdk(worker, mode) as client:
        async with client.responses.stream(model="tiny", input="hello there") as stream:
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        record = await worker.record()
    assert not [kind for kind in kinds if "reasoning" in kind]
    assert [item.type for item in response.output] == ["message"]
    assert response.output_text == read_typed(recorded.body).content[0]
    assert response.usage is not None
    assert response.usage.output_tokens == 83
    assert (record.outcome, record.summary and record.summary.reasoning_tokens) == (Outcome.OK, 40)


async def test_a_whole_response_and_a_whole_message_lose_their_reasoning() -> None:
    response, message = load("vllm-0.32-cpu/responses-nonstream"), load("vllm-0.32-cpu/messages-nonstream")
    async with flow(Script.of_recording(response), Script.of_recording(message)) as worker:
        seen = await posted(worker, {"model": "tiny", "input": "x"}, path="/v1/responses", X_Gateway_Reasoning="drop")
        assert [item["type"] for item in json.loads(seen.body)["output"]] == ["message"]
        seen = await posted(worker, ASK, path="/v1/messages", X_Gateway_Reasoning="drop")
        assert [block["type"] for block in json.loads(seen.body)["content"]] == ["text"]


async def test_a_stream_of_messages_without_thinking_begins_at_block_0() -> None:
    recorded = load("vllm-0.32-cpu/messages-stream")
    async with flow(Script.of_recording(recorded)) as worker:
        seen = await posted(worker, {**ASK, "stream": True}, path="/v1/messages", X_Gateway_Reasoning="drop")
    events = payloads(seen.body)
    assert [name for name, _ in events][:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert {value["index"] for _, value in events if "index" in value} == {0}
    assert read_typed(seen.body).engine_text() == ("", read_typed(recorded.body).content[0])
    assert events[-1][0] == "message_stop"


# --- the numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metrics", ["usage", "event"])
@pytest.mark.parametrize("mode", MODES)
async def test_the_pace_comes_with_every_mode(mode: Delivery, metrics: str) -> None:
    async with flow(Script.of_recording(STREAM)) as worker:
        seen = await posted(worker, {**ASK, "stream": True}, X_Gateway_Reasoning=mode, X_Gateway_Metrics=metrics)
    values = [value for _, value in payloads(seen.body) if value != "[DONE]"]
    if metrics == "usage":
        (report,) = [value["usage"]["pacekeeper"] for value in values if value.get("usage")]
    else:
        (report,) = [value["pacekeeper"] for value in values if "pacekeeper" in value]
        assert not [value for value in values if value.get("usage")]
        (ended,) = [value for value in values if value["choices"] and value["choices"][0]["finish_reason"]]
        assert ended["system_fingerprint"], "as if usage had not been asked for"
    assert (report["completion_tokens"], report["reasoning_tokens"]) == (83, 40)
    assert seen.events[-1] == DONE


async def test_the_pace_of_a_whole_answer_is_that_of_what_the_engine_sent() -> None:
    async with flow(Script.of_recording(WHOLE)) as worker:
        seen = await posted(worker, ASK, X_Gateway_Reasoning="drop", X_Gateway_Metrics="usage")
    assert json.loads(seen.body)["usage"]["pacekeeper"]["reasoning_tokens"] == 40
    assert read_chat_body(seen.body).engine_text() == ("", CONTENT)


# --- think tags ---------------------------------------------------------------------------------------------------

TAGGED = ["<thi", "nk>", "The", " plan <", "/think", ">", "An", "swer"]


def tagged_stream(parts: list[str]) -> Script:
    return stream_of(role(), *[chat(content=part) for part in parts], chat(finish="stop"), usage(20), DONE)


@pytest.mark.parametrize("opened", [False, True])
async def test_tags_are_split_by_default_where_the_settings_say_so(opened: bool) -> None:
    policy = ReasoningPolicy(tags=ThinkTags(opened=opened))
    parts = TAGGED[2:] if opened else TAGGED
    async with flow(tagged_stream(parts), tagged_stream(parts), reasoning=policy) as worker:
        seen = await posted(worker, {**ASK, "stream": True})
        summary = (await worker.record()).summary
        raw = await posted(worker, {**ASK, "stream": True}, X_Gateway_Reasoning="pass")
    assert read_chat(seen.body).engine_text() == ("The plan ", "Answer")
    assert read_chat(raw.body).engine_text() == ("", "".join(parts))
    assert summary is not None
    assert (summary.completion_tokens, summary.total_exactness) == (20, Exactness.EXACT)
    assert (summary.reasoning_tokens, summary.split_exactness) == (12, Exactness.ESTIMATED)


async def test_tags_in_a_whole_answer_are_split_and_measured() -> None:
    message = {"role": "assistant", "content": "<think>The plan </think>Answer"}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 20}}
    async with flow(
        Script((answer(json.dumps(body).encode()),)), reasoning=ReasoningPolicy(tags=ThinkTags())
    ) as worker:
        seen = await posted(worker, ASK, X_Gateway_Reasoning="reasoning_content")
        summary = (await worker.record()).summary
    assert read_chat_body(seen.body).engine_text() == ("The plan ", "Answer")
    assert summary is not None
    assert (summary.reasoning_tokens, summary.split_exactness) == (12, Exactness.ESTIMATED)


async def test_completions_lose_their_tagged_reasoning_when_asked() -> None:
    texts = [{"choices": [{"index": 0, "text": part, "finish_reason": None}]} for part in TAGGED]
    ends = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}
    events = [b"data: " + json.dumps(it).encode() + b"\n\n" for it in (*texts, ends)]
    policy = ReasoningPolicy(tags=ThinkTags())
    async with flow(stream_of(*events, DONE), stream_of(*events, DONE), reasoning=policy) as worker:
        ask = {"model": "tiny", "prompt": "x", "stream": True}
        seen = await posted(worker, ask, path="/v1/completions", X_Gateway_Reasoning="drop")
        untouched = await posted(worker, ask, path="/v1/completions")
    assert read_chat(seen.body).engine_text() == ("", "Answer")
    assert read_chat(seen.body).ends[0] == ["stop"]
    assert untouched.body == b"".join([*events, DONE])


# --- defaults and refusals ----------------------------------------------------------------------------------------


async def test_the_settings_choose_for_who_says_nothing_and_the_header_wins() -> None:
    policy = ReasoningPolicy(mode=Delivery.TAGS)
    async with flow(*[Script.of_recording(STREAM)] * 2, reasoning=policy) as worker:
        body = {**ASK, "stream": True}
        assert inlined(read_chat((await posted(worker, body)).body).content[0]) == (REASONING, CONTENT)
        seen = await posted(worker, body, X_Gateway_Reasoning="drop")
        assert read_chat(seen.body).engine_text() == ("", CONTENT)


async def test_a_default_that_an_endpoint_cannot_do_is_left_out() -> None:
    async with flow(Script.of_recording(WHOLE), reasoning=ReasoningPolicy(mode=Delivery.EVENTS)) as worker:
        assert (await posted(worker, ASK)).body == WHOLE.body


@pytest.mark.parametrize(
    "path, body, mode, possible",
    [
        ("/v1/chat/completions", ASK, "none", "pass, reasoning, reasoning_content, both, drop, events, side or tags"),
        ("/v1/chat/completions", ASK, "events", "pass, reasoning, reasoning_content, both, drop, side or tags"),
        ("/v1/completions", {"model": "tiny", "prompt": "x"}, "drop", "pass"),
        ("/v1/responses", {"model": "tiny", "input": "x", "stream": True}, "tags", "pass, drop or side"),
        ("/v1/messages", ASK, "reasoning_content", "pass, drop or side"),
    ],
)
async def test_what_makes_no_sense_is_a_400_that_says_what_does(
    path: str, body: dict[str, Any], mode: str, possible: str
) -> None:
    async with flow() as worker:
        seen = await posted(worker, body, path=path, X_Gateway_Reasoning=mode)
    error = json.loads(seen.body)["error"]
    assert seen.status == 400
    assert error["message"].endswith(possible)
    assert error.get("param", "X-Gateway-Reasoning") == "X-Gateway-Reasoning"


async def test_a_body_that_is_too_long_to_be_edited_does_not_get_out() -> None:
    limits = LimitPolicy(hold_bytes=2048, event_bytes=1024, answer_hold_bytes=512, answer_tap_bytes=1024)
    message = {"content": "x" * 3000, "reasoning": "secret"}
    whole = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    async with flow(Script((answer(whole),)), policy=WorkerPolicy(limits=limits)) as worker:
        seen = await posted(worker, ASK, X_Gateway_Reasoning="drop")
    assert (seen.status, json.loads(seen.body)["error"]["code"]) == (502, "backend_garbled")
    assert b"secret" not in seen.body


async def test_an_engine_s_error_passes_as_it_is_in_every_mode() -> None:
    refused = b'{"error":{"message":"no","type":"BadRequestError","param":null,"code":400}}'
    async with flow(*[Script((answer(refused, status=400),))] * len(MODES)) as worker:
        for mode in MODES:
            seen = await posted(worker, {**ASK, "stream": True}, X_Gateway_Reasoning=mode)
            assert (seen.status, seen.body) == (400, refused)
            assert "x-gateway-reasoning-stream" not in seen.headers


# --- a stream that breaks off -------------------------------------------------------------------------------------


async def test_reasoning_between_tags_is_closed_before_the_error_of_a_stream_that_breaks_off() -> None:
    broken = Script((HEAD, chunk(role()), chunk(chat(reasoning="why ")), chunk(chat(reasoning="so"))), End.CLOSE)
    async with flow(broken) as worker:
        seen = await posted(worker, {**ASK, "stream": True}, X_Gateway_Reasoning="tags")
        *events, error, done = seen.events
        text = "".join(
            (choice["delta"].get("content") or "")
            for _, value in payloads(b"".join(events))
            for choice in value["choices"]
        )
        assert text == "<think>why so</think>"
        assert b'finish_reason":"' not in seen.body, "the engine has given none"
        assert (b"backend_died" in error, done) == (True, DONE)
        assert (await worker.record()).outcome is Outcome.UPSTREAM_ERROR
