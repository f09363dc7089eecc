"""Events and answers of any size, and clients that read slowly or not at all, on every API: memory stays bounded.

The expected ends: an event of 1 MiB passes, one of 64 MiB ends the stream at `limits.hold_bytes` without having been
held; a slow reader gets every byte; one that never reads is held back, given up after `timers.client_write_s`, recorded
as ``client_gone``, and its engine cancelled.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from gateway.core.routing.snapshot import LimitPolicy, TimerPolicy, WorkerPolicy
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Ending, Flag, Outcome
from tests.fakes.apis import APIS, CHAT, HEAD, JSON_HEAD, RESPONSES, Api, chunk, thought
from tests.fakes.backend import End, Script, cut
from tests.fakes.client import Answer, raw_client
from tests.fakes.delivered import read_chat
from tests.fakes.fault_stand import PATIENCE_S, Stand, stand

pytestmark = pytest.mark.asyncio

MIB = 1024 * 1024
all_apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
stream_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
PIECE = b"x" * (64 * 1024)


def large(api: Api, size: int) -> bytes:
    """An event of one API with a text of that many letters."""
    return api.hello.replace(b"hello", b"x" * size)


async def asked(at: Stand, api: Api, *, stream: bool = True, **headers: str) -> Answer:
    async with raw_client(at.worker.port) as client:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        await client.post(api.request(stream=stream), path=api.path, headers=given)
        return await client.answer(timeout_s=PATIENCE_S)


# --- one large event ---


@all_apis
@pytest.mark.parametrize("framing", ["one chunk", "many chunks", "byte runs"])
async def test_an_event_of_a_mebibyte_passes(api: Api, framing: str) -> None:
    event = large(api, MIB)
    steps = range(0, len(event), len(PIECE))
    match framing:
        case "one chunk":
            sent: tuple[bytes, ...] = (chunk(event),)
        case "many chunks":
            sent = tuple(chunk(event[at : at + len(PIECE)]) for at in steps)
        case _:
            sent = tuple(cut(chunk(event), steps))
    async with stand() as at:
        at.plays(Script((HEAD, *map(chunk, api.opening), *sent, *map(chunk, api.ending), TERMINATOR)))
        seen = await asked(at, api)
        assert (seen.body, seen.whole) == (b"".join((*api.opening, event, *api.ending)), True)
        record = await at.ended(Outcome.OK)
        assert record.summary is not None
        assert (record.summary.oversize_events, record.summary.completion_tokens) == (0, 2)


@pytest.mark.parametrize("mode", ["drop", "side", "tags", "both", "events", "reasoning_content"])
async def test_an_event_of_a_mebibyte_passes_through_every_delivery(mode: str) -> None:
    events = (*CHAT.opening, thought(CHAT, "y" * MIB), large(CHAT, MIB), *CHAT.ending)
    async with stand() as at:
        at.plays(Script((HEAD, *map(chunk, events), TERMINATOR)))
        seen = await asked(at, CHAT, X_Gateway_Reasoning=mode)
        content = read_chat(seen.body).engine_text()[1].partition("</think>")
        assert (content[2] or content[0]) == "x" * MIB
        await at.ended(Outcome.OK)


def refused(begun: tuple[bytes, ...], framing: str) -> Script:
    """A stream that goes on with an event of 64 MiB, of which one piece is kept in memory, however it is framed."""
    start = b'data: {"x":"'
    pieces: tuple[bytes, ...] = (PIECE,) * 1024
    if framing == "one chunk":
        return Script((HEAD, *map(chunk, begun), b"%x\r\n" % (64 * MIB + len(start)), start, *pieces), End.HANG)
    return Script((HEAD, *map(chunk, begun), chunk(start), *(chunk(PIECE),) * 1024), End.HANG)


@all_apis
@pytest.mark.parametrize("framing", ["one chunk", "many chunks"])
@pytest.mark.parametrize("begun", [False, True], ids=["first", "later"])
async def test_an_event_of_64_mebibytes_is_refused_within_the_bound_of_memory(
    api: Api, framing: str, *, begun: bool
) -> None:
    hold = LimitPolicy().hold_bytes
    async with stand() as at:
        at.plays(refused(api.begun if begun else (), framing))
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            seen = await asked(at, api)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak - before < 2.5 * hold < 64 * MIB, "what is held, and a copy while it grows"
        exchange = await at.accepted()
        await at.cancelled(exchange)
        assert exchange.sent_bytes < 40 * MIB
        if begun:
            assert api.told(seen.body.removeprefix(b"".join(api.begun))) == api.names("backend_garbled", status=502)
        else:
            assert (seen.status, api.refused(seen)) == (502, api.names("backend_garbled", status=502))
        record = await at.ended(Outcome.UPSTREAM_ERROR)
        assert (record.ending, record.error_code) == (Ending.OVERSIZE, "backend_garbled")
        assert [it.code for it in at.worker.failures] == ["backend_garbled"]


@all_apis
async def test_one_chunk_of_64_mebibytes_in_an_answer_in_one_piece_is_refused(api: Api) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    async with stand() as at:
        at.plays(Script((head, b"%x\r\n" % (64 * MIB), *(PIECE,) * 1024), End.HANG))
        seen = await asked(at, api, stream=False)
        assert (seen.status, api.refused(seen)) == (502, api.names("backend_garbled", status=502))
        exchange = await at.accepted()
        await at.cancelled(exchange)
        assert exchange.sent_bytes < 40 * MIB
        assert (await at.ended(Outcome.UPSTREAM_ERROR)).ending is Ending.OVERSIZE


@all_apis
async def test_a_long_answer_in_one_piece_is_held_up_to_its_bound_and_then_flows(api: Api) -> None:
    """Its length is no fault: 64 MiB pass, without being held."""
    body = (PIECE,) * 1024
    async with stand() as at:
        at.plays(Script((JSON_HEAD % (64 * MIB), *body)))
        async with raw_client(at.worker.port) as client:
            await client.post(api.request(stream=False), path=api.path)
            read = 0
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                while read < 64 * MIB:
                    read += len(await client.reader.read(MIB))
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert peak - before < 24 * MIB, "a copy up to `limits.answer_tap_bytes`, and buffers"
        await at.worker.record()


@pytest.mark.parametrize("api", [CHAT, RESPONSES], ids=lambda api: api.name)
async def test_an_answer_too_long_to_take_the_reasoning_out_of_is_refused_and_not_leaked(api: Api) -> None:
    async with stand() as at:
        at.plays(Script((JSON_HEAD % (64 * MIB), *(PIECE,) * 1024), End.HANG))
        seen = await asked(at, api, stream=False, X_Gateway_Reasoning="drop")
        assert (seen.status, b"xxx" in seen.body) == (502, False)
        await at.cancelled(await at.accepted())
        assert (await at.ended(Outcome.UPSTREAM_ERROR)).ending is Ending.OVERSIZE


# --- clients that read slowly or not at all ---

SMALL_BUFFER = 32 * 1024


@all_apis
@stream_or_not
async def test_a_slow_reader_gets_every_byte_and_the_engine_is_read_no_faster(api: Api, *, stream: bool) -> None:
    """40 MB: more than what the sockets on the way may hold between them."""
    event = large(api, 80_000)
    whole = b'{"x":"' + PIECE * 640 + b'"}'
    flow = (HEAD, *map(chunk, (*api.opening, *[event] * 500, *api.ending)), TERMINATOR)
    pieces = flow if stream else (JSON_HEAD % len(whole), *cut(whole, range(0, len(whole), 65536)))
    async with stand(client_buffer_bytes=SMALL_BUFFER) as at:
        at.plays(Script(pieces))
        async with raw_client(at.worker.port) as client:
            client.writer.transport.pause_reading()
            await client.post(api.request(stream=stream), path=api.path)
            exchange = await at.accepted()
            await at.worker.until(exchange.blocked.is_set)
            assert exchange.sent_bytes < sum(map(len, pieces)), "held back by the client"
            client.writer.transport.resume_reading()
            seen = await client.answer(timeout_s=PATIENCE_S)
        assert seen.whole
        assert seen.body == (b"".join((*api.opening, *[event] * 500, *api.ending)) if stream else whole)
        record = await at.worker.record()
        assert record.blocked_s > 0
        if stream:
            assert record.outcome is Outcome.OK
            assert record.summary is not None
            assert Flag.CLIENT_BLOCKED in record.summary.flags


NEVER_READS = [(api, stream, "pass") for api in APIS for stream in (True, False)]
NEVER_READS += [(api, True, "drop") for api in APIS if api.name != "completions"]


@pytest.mark.parametrize(
    "api, stream, mode", NEVER_READS, ids=[f"{api.name}-{stream}-{mode}" for api, stream, mode in NEVER_READS]
)
async def test_a_client_that_never_reads_is_given_up_in_bounded_memory_and_its_engine_cancelled(
    api: Api, mode: str, *, stream: bool
) -> None:
    flood: Any = chunk(large(api, 60_000)) if stream else PIECE
    pieces = (HEAD if stream else JSON_HEAD % (4000 * len(flood)), *[flood] * 4000)
    policy = WorkerPolicy(timers=TimerPolicy(client_write_s=0.3))
    async with stand(client_buffer_bytes=SMALL_BUFFER, policy=policy) as at:
        at.plays(Script(pieces, End.HANG))
        async with raw_client(at.worker.port) as client:
            client.writer.transport.pause_reading()
            await client.post(api.request(stream=stream), path=api.path, headers={"X-Gateway-Reasoning": mode})
            exchange = await at.accepted()
            await at.cancelled(exchange)
            record = await at.ended(Outcome.CLIENT_GONE)
        assert (record.ending, record.blocked_s > 0) == (Ending.CLIENT_STALLED, True)
        assert exchange.sent_bytes < 40_000_000, "of 240 MB"
        assert at.worker.failures == [], "no fault of the backend's"
