"""Faults where reasoning is delivered otherwise than it came: what was held back or set aside has its end as well.

The expected ends: the client has every word that may be its own up to the break, an error event and the end; of
reasoning that it must not see there is none, also not in what was held back; whoever reads the reasoning aside gets
what there was, an error event and the end; and nothing is left of streams that nobody was told of.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from gateway.core.routing.snapshot import CommentPolicy, PoolView, TimerPolicy, WorkerPolicy
from gateway.core.stream.delivery.mode import Delivery, ReasoningPolicy, ThinkTags
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Ending, Outcome
from tests.fakes.apis import APIS, CHAT, COMPLETIONS, HEAD, JSON_HEAD, Api, chunk, thinking, thought
from tests.fakes.backend import End, Script
from tests.fakes.client import Answer, RawClient, raw_client
from tests.fakes.delivered import ReadAnswer, inlined, read_chat, read_typed
from tests.fakes.engine_events import DONE, chat, role
from tests.fakes.fault_stand import LEAVE, Stand, stand

pytestmark = pytest.mark.asyncio

MODES: Final = [mode for mode in Delivery if mode is not Delivery.PASS]
HIDING: Final = (Delivery.DROP, Delivery.SIDE)
THINKING: Final = [api for api in APIS if api is not COMPLETIONS]
NAME: Final = "x-gateway-reasoning-stream"
STALLS: Final = TimerPolicy(stall_s=120.0, silent_max_s=120.0)

WAYS: Final[dict[str, tuple[tuple[bytes, ...], End, Outcome, str]]] = {
    "closes": ((), End.CLOSE, Outcome.UPSTREAM_ERROR, "backend_died"),
    "resets": ((), End.RESET, Outcome.UPSTREAM_ERROR, "backend_died"),
    "closes inside an event": (
        (chunk(b'data: {"choices":[{"delta":{"rea'),),
        End.CLOSE,
        Outcome.UPSTREAM_ERROR,
        "backend_died",
    ),
    "ends without the end marker": ((TERMINATOR,), End.KEEP_ALIVE, Outcome.UPSTREAM_ERROR, "backend_died"),
    "breaks its framing": ((b"zz\r\n",), End.HANG, Outcome.UPSTREAM_ERROR, "backend_garbled"),
    "falls silent": ((), End.HANG, Outcome.UPSTREAM_TIMEOUT, "backend_stalled"),
}


def read(api: Api, body: bytes) -> ReadAnswer:
    return read_chat(body) if api is CHAT or api is COMPLETIONS else read_typed(body)


SILENT: Final = "falls silent"
all_deaths = pytest.mark.parametrize("way", [way for way in WAYS if way != SILENT])
"""Silence is a test of its own, in fake time."""


async def post(client: RawClient, mode: str, *, api: Api = CHAT, stream: bool = True, **more: Any) -> None:
    headers = {"X-Gateway-Reasoning": mode}
    await client.post(api.request(stream=stream) | more, path=api.path, headers=headers)


async def asked(at: Stand, mode: str, *, api: Api = CHAT, **more: Any) -> Answer:
    async with raw_client(at.worker.port) as client:
        await post(client, mode, api=api, **more)
        return await client.answer(timeout_s=100_000)


async def aside(at: Stand, path: str) -> Answer:
    """The whole of a side stream."""
    async with raw_client(at.worker.port) as reader:
        await reader.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        return await reader.answer(timeout_s=100_000)


# --- death in the middle of reasoning -----------------------------------------------------------------------------


@all_deaths
@pytest.mark.parametrize("mode", MODES)
async def test_a_death_in_the_middle_of_reasoning_ends_in_an_error_event_in_every_mode(
    mode: Delivery, way: str
) -> None:
    await broken_in_reasoning(mode, way)


@pytest.mark.looptime
@pytest.mark.parametrize("mode", MODES)
async def test_silence_in_the_middle_of_reasoning_ends_in_an_error_event_in_every_mode(mode: Delivery) -> None:
    await broken_in_reasoning(mode, SILENT)


async def broken_in_reasoning(mode: Delivery, way: str) -> None:
    pieces, end, outcome, code = WAYS[way]
    begun = map(chunk, (role(), thought(CHAT, "hm "), thought(CHAT, "so")))
    async with stand(policy=WorkerPolicy(timers=STALLS)) as at:
        at.plays(Script((HEAD, *begun, *pieces), end))
        seen = await asked(at, mode)
        record = await at.ended(outcome)
        assert (record.error_code, record.attempts) == (code, 1)
        assert record.summary is not None
        assert record.summary.chunks == 2, "what the engine sent is what is counted"
    assert (seen.status, seen.whole) == (200, True)
    assert CHAT.told_last(seen.body) == code
    found = read_chat(seen.body)
    assert (len(found.errors), found.done, found.ends[0]) == (1, 1, [])
    reasoning, content = found.engine_text()
    if mode is Delivery.TAGS:
        assert inlined(content) == ("hm so", "")
    else:
        assert (reasoning, content) == ("" if mode in HIDING else "hm so", "")


@all_deaths
@pytest.mark.parametrize("mode", HIDING)
@pytest.mark.parametrize("api", THINKING, ids=lambda api: api.name)
async def test_hidden_reasoning_that_breaks_off_is_not_seen_and_its_reader_gets_the_error(
    api: Api, mode: Delivery, way: str
) -> None:
    await broken_in_hidden_reasoning(api, mode, way=way)


@pytest.mark.looptime
@pytest.mark.parametrize("mode", HIDING)
@pytest.mark.parametrize("api", THINKING, ids=lambda api: api.name)
async def test_hidden_reasoning_that_falls_silent_is_not_seen_and_its_reader_gets_the_error(
    api: Api, mode: Delivery
) -> None:
    await broken_in_hidden_reasoning(api, mode, way=SILENT)


async def broken_in_hidden_reasoning(api: Api, mode: Delivery, *, way: str) -> None:
    """A reader beside the running answer and one that comes when it is over are told the same."""
    pieces, end, outcome, code = WAYS[way]
    go = asyncio.Event()
    async with stand(policy=WorkerPolicy(timers=STALLS)) as at:
        at.plays(Script((HEAD, *map(chunk, thinking(api, "hm ", "so")), go, *pieces), end))
        async with raw_client(at.worker.port) as client, raw_client(at.worker.port) as reader:
            await post(client, mode, api=api)
            path = (await client.until(b"data:")).headers.get(NAME, "")
            assert bool(path) is (mode is Delivery.SIDE)
            if path:
                await reader.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
                await reader.until(b"hm ")
            go.set()
            seen = await client.answer(timeout_s=100_000)
            readers = [await reader.answer(timeout_s=100_000), await aside(at, path)] if path else []
        record = await at.ended(outcome)
        assert record.error_code == code
    found = read(api, seen.body)
    assert found.engine_text() == ("", "hello")
    assert len(found.errors) == 1
    assert api.told_last(seen.body) == api.names(code, status=504 if code == "backend_stalled" else 502)
    for it in readers:
        assert (it.status, it.whole) == (200, True)
        assert read_chat(it.body).engine_text() == ("hm so", "")
        assert (it.error["code"], it.events[-1]) == ("backend_died", DONE)


# --- tags that were held back -------------------------------------------------------------------------------------

HELD: Final = {
    "the beginning of a tag": (["a <thi"], "", "a <thi"),
    "less than a tag": (["a <"], "", "a <"),
    "the beginning of its end": (["<think>hm </th"], "hm </th", ""),
    "text after a whole tag": (["<think>hm</think>", "b <"], "hm", "b <"),
    "nothing": (["<think>", "hm"], "hm", ""),
}


@pytest.mark.parametrize("way", ["closes", "resets", "ends without the end marker", "breaks its framing"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", HELD)
async def test_what_was_held_back_for_a_tag_comes_out_before_the_error_event(
    mode: Delivery, what: str, way: str
) -> None:
    """Reasoning and content are the engine's text up to the break; hidden reasoning stays hidden."""
    parts, reasoning, content = HELD[what]
    pieces, end, outcome, code = WAYS[way]
    tagged = PoolView(name="main", reasoning=ReasoningPolicy(tags=ThinkTags()))
    async with stand(pool=tagged) as at:
        begun = map(chunk, (role(), *(chat(content=part) for part in parts)))
        at.plays(Script((HEAD, *begun, *pieces), end))
        seen = await asked(at, mode)
        assert (await at.ended(outcome)).error_code == code
        found = read_chat(seen.body)
        assert (len(found.errors), found.done) == (1, 1)
        if mode is Delivery.TAGS:
            assert inlined(found.content[0]) == (reasoning, content)
        else:
            assert found.engine_text() == ("" if mode in HIDING else reasoning, content)
        if mode is Delivery.SIDE:
            late = await aside(at, seen.headers[NAME])
            assert reasoning.startswith(read_chat(late.body).engine_text()[0])
            assert late.error["code"] == "backend_died"


CHAT_ERROR: Final = b'data: {"error":{"message":"EngineCore died","type":"InternalServerError","code":500}}\n\n'
INSIDE: Final = {"an error": CHAT_ERROR, "an abort": chat(finish="abort")}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", HELD)
async def test_what_was_held_back_for_a_tag_comes_out_before_the_engine_s_own_error(
    mode: Delivery, what: str, inside: str
) -> None:
    """Its error inside the 200 is the client's end, nothing is added; the reasoning aside ends badly as well."""
    parts, reasoning, content = HELD[what]
    tagged = PoolView(name="main", reasoning=ReasoningPolicy(tags=ThinkTags()))
    async with stand(pool=tagged) as at:
        events = (role(), *(chat(content=part) for part in parts), INSIDE[inside], DONE)
        at.plays(Script((HEAD, *map(chunk, events), TERMINATOR)))
        seen = await asked(at, mode)
        record = await at.ended(Outcome.UPSTREAM_ERROR)
        assert (record.ending, record.error_code) == (Ending.COMPLETE, "")
        assert seen.events[-1] == DONE
        found = read_chat(seen.body)
        assert (len(found.errors), found.done) == (inside == "an error", 1)
        if mode is Delivery.TAGS:
            assert inlined(found.content[0]) == (reasoning, content)
        else:
            assert found.engine_text() == ("" if mode in HIDING else reasoning, content)
        if mode is Delivery.SIDE:
            late = await aside(at, seen.headers[NAME])
            assert read_chat(late.body).engine_text() == (reasoning, "")
            assert (late.error["code"], late.events[-1]) == ("backend_died", DONE)


@pytest.mark.parametrize("leave", LEAVE, ids=["closes", "resets"])
async def test_the_reasoning_of_a_client_that_leaves_after_its_end_marker_ended_well(leave: Any) -> None:
    async with stand() as at:
        events = (role(), thought(CHAT, "hm"), chat(content="hello"), chat(finish="stop"), DONE)
        at.plays(Script((HEAD, *map(chunk, events)), End.HANG))
        async with raw_client(at.worker.port) as client:
            await post(client, Delivery.SIDE)
            path = (await client.until(DONE)).headers[NAME]
            leave(client)
            await at.cancelled(await at.accepted())
        await at.ended(Outcome.OK)
        late = await aside(at, path)
        assert (read_chat(late.body).engine_text(), b"error" in late.body) == (("hm", ""), False)
        assert late.events[-1] == DONE


@pytest.mark.parametrize("end", [End.CLOSE, End.RESET], ids=["closes", "resets"])
@pytest.mark.parametrize("mode", Delivery)
async def test_a_finish_that_waited_for_the_usage_comes_out_before_the_error_event(mode: Delivery, end: End) -> None:
    """The gateway asked for usage on the client's behalf, so the last event waits for it; the engine dies meanwhile."""
    events = (role(), thought(CHAT, "hm"), chat(content="hello"), chat(finish="stop"))
    async with stand() as at:
        at.plays(Script((HEAD, *map(chunk, events)), end))
        seen = await asked(at, mode, stream_options=None)
        assert (await at.ended(Outcome.UPSTREAM_ERROR)).injected
        found = read_chat(seen.body)
        assert (found.ends[0], len(found.errors), found.done) == (["stop"], 1, 1)
        assert seen.body.rindex(b'"stop"') < seen.body.index(b'"error"')


# --- after a comment ----------------------------------------------------------------------------------------------


@all_deaths
@pytest.mark.parametrize("mode", HIDING)
async def test_a_death_in_reasoning_that_the_client_only_heard_comments_of(mode: Delivery, way: str) -> None:
    pieces, end, outcome, code = WAYS[way]
    go = asyncio.Event()
    async with stand(policy=WorkerPolicy(comments=CommentPolicy(first_s=0.02, every_s=0.02))) as at:
        at.plays(Script((HEAD, chunk(thought(CHAT, "hm ")), go, *pieces), end))
        async with raw_client(at.worker.port) as client:
            await post(client, mode)
            await client.until(b": keep-alive\n\n")
            go.set()
            seen = await client.answer()
        assert (await at.ended(outcome)).error_code == code
    assert (seen.status, seen.whole) == (200, True)
    assert CHAT.told(seen.body.replace(b": keep-alive\n\n", b"")) == code
    assert b"hm" not in seen.body


# --- clients that leave -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", LEAVE, ids=["closes", "resets"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_leaves_in_the_middle_of_reasoning_has_its_backend_closed(
    mode: Delivery, leave: Any
) -> None:
    async with stand() as at:
        at.plays(Script((HEAD, *map(chunk, (role(), thought(CHAT, "hm")))), End.HANG))
        async with raw_client(at.worker.port) as client:
            await post(client, mode)
            path = (await client.until(b"data:")).headers.get(NAME, "")
            exchange = await at.accepted()
            await exchange.played.wait()
            leave(client)
            await at.cancelled(exchange)
        assert (await at.ended(Outcome.CLIENT_GONE)).ending is Ending.CLIENT_GONE
        if mode is Delivery.SIDE:
            late = await aside(at, path)
            assert (late.whole, late.error["code"]) == (True, "backend_died"), "its reasoning broke off as well"


@pytest.mark.parametrize("leave", LEAVE, ids=["closes", "resets"])
@pytest.mark.parametrize("api", THINKING, ids=lambda api: api.name)
async def test_a_client_that_leaves_while_queued_leaves_no_side_stream_behind(api: Api, leave: Any) -> None:
    async with stand(1, pool=PoolView(name="main", concurrency=1)) as at:
        worker = at.worker
        at.plays(Script((), End.HANG))
        async with raw_client(worker.port) as first, raw_client(worker.port) as leaver:
            await first.post(api.request(), path=api.path)
            await at.accepted()
            await post(leaver, Delivery.SIDE, api=api)
            await worker.until(lambda: worker.gate.flows() == {"main": {"": (1, 1)}})
            assert len(worker.sides._streams) == 1
            leave(leaver)
            await worker.record()
            assert worker.sides._streams == {}


@pytest.mark.parametrize("api", THINKING, ids=lambda api: api.name)
@pytest.mark.parametrize("end", [End.CLOSE, End.RESET], ids=["closes", "resets"])
async def test_an_answer_in_one_piece_that_breaks_is_a_502_and_leaves_no_side_stream_behind(api: Api, end: End) -> None:
    async with stand() as at:
        at.plays(Script((JSON_HEAD % len(api.whole) + api.whole[:-3],), end))
        seen = await asked(at, Delivery.SIDE, api=api, stream=False)
        assert (seen.status, NAME in seen.headers) == (502, False)
        await at.ended(Outcome.UPSTREAM_ERROR)
        assert at.worker.sides._streams == {}
