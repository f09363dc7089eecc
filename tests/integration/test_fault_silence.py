"""A backend that says nothing any more: before its first event, between two, or because it is not there at all.

The expected ends: 504 as long as the client has had nothing, an error event in the stream once it has, a comment or
ping included; recorded as ``upstream_timeout``, the engine cancelled, nothing retried.  Of half-open TCP no word ever
comes, so the same timers must find it.  Timers run in fake time, half-open connections in the real one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.routing.snapshot import CommentPolicy, TimerPolicy, WorkerPolicy
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Dialect, Ending, Outcome
from tests.fakes.apis import APIS, CHAT, HEAD, JSON_HEAD, Api, chunk
from tests.fakes.backend import End, Script
from tests.fakes.client import Answer, raw_client
from tests.fakes.fault_stand import PATIENCE_S, Stand, stand
from tests.fakes.half_open import mute_listener, vanish
from tests.fakes.worker import backend_view

pytestmark = pytest.mark.asyncio

all_apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
stream_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

COMMENT = b": keep-alive\n\n"
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
LONG_S = 100_000.0
TIMERS = TimerPolicy(first_event_s=600, stall_s=120)


def comment_of(api: Api) -> bytes:
    return PING if api.dialect is Dialect.MESSAGES else COMMENT


async def asked(at: Stand, api: Api, *, stream: bool = True, **more: Any) -> Answer:
    async with raw_client(at.worker.port) as client:
        await client.post(api.request(stream=stream) | more, path=api.path)
        return await client.answer(timeout_s=LONG_S)


# --- in fake time -------------------------------------------------------------------------------------------------


@pytest.mark.looptime
@all_apis
@stream_or_not
@pytest.mark.parametrize("head", [False, True], ids=["before its head", "after its head"])
async def test_silence_before_the_first_event_is_a_504(api: Api, *, stream: bool, head: bool) -> None:
    pieces = (HEAD if stream else JSON_HEAD % 100,) if head else ()
    async with stand(policy=WorkerPolicy(timers=TIMERS)) as at:
        at.plays(Script(pieces, End.HANG))
        seen = await asked(at, api, stream=stream)
        assert (seen.status, api.refused(seen)) == (504, api.names("backend_silent", status=504))
        await at.cancelled(await at.accepted())
        record = await at.ended(Outcome.UPSTREAM_TIMEOUT)
        assert (record.ending, record.error_code) == (Ending.FIRST_EVENT_TIMEOUT, "backend_silent")
        assert 600 <= record.total_s < 601
        assert [it.code for it in at.worker.failures] == ["backend_silent"]


@pytest.mark.looptime
@all_apis
async def test_silence_before_the_first_event_after_a_comment_is_an_error_event(api: Api) -> None:
    comments = CommentPolicy(first_s=250, every_s=250, untouched=True)
    async with stand(policy=WorkerPolicy(timers=TIMERS, comments=comments)) as at:
        at.plays(Script((HEAD,), End.HANG))
        seen = await asked(at, api)
        assert (seen.status, seen.whole) == (200, True)
        said = comment_of(api) * 2
        assert seen.body.startswith(said)
        assert api.told(seen.body.removeprefix(said)) == api.names("backend_silent", status=504)
        await at.cancelled(await at.accepted())
        record = await at.ended(Outcome.UPSTREAM_TIMEOUT)
        assert (record.ending, record.error_code) == (Ending.FIRST_EVENT_TIMEOUT, "backend_silent")


AFTER_A_COMMENT = {
    "closes": ((), End.CLOSE, "backend_died", Ending.EOF),
    "resets": ((), End.RESET, "backend_died", Ending.RESET),
    "ends without an event": ((TERMINATOR,), End.KEEP_ALIVE, "backend_died", Ending.COMPLETE),
    "breaks its framing": ((b"zz\r\n",), End.HANG, "backend_garbled", Ending.BAD_FRAMING),
}


@pytest.mark.looptime
@all_apis
@pytest.mark.parametrize("way", AFTER_A_COMMENT)
async def test_any_failure_before_the_first_event_after_a_comment_is_an_error_event(api: Api, way: str) -> None:
    """The status went out with the comment: what would have been a 502 is told inside the stream, and not retried."""
    pieces, end, code, ending = AFTER_A_COMMENT[way]
    later = asyncio.Event()
    comments = CommentPolicy(first_s=10, every_s=10, untouched=True)
    async with stand(policy=WorkerPolicy(timers=TIMERS, comments=comments)) as at:
        at.plays(Script((HEAD, later, *pieces), end))
        asyncio.get_running_loop().call_later(25, later.set)
        seen = await asked(at, api)
        assert (seen.status, seen.whole) == (200, True)
        said = comment_of(api) * 2
        assert seen.body.startswith(said)
        assert api.told(seen.body.removeprefix(said)) == api.names(code, status=502)
        record = await at.ended(Outcome.UPSTREAM_ERROR)
        assert (record.ending, record.error_code, record.attempts) == (ending, code, 1)
        assert record.summary is None or record.summary.events == 0, "comments and pings are not counted"


@pytest.mark.looptime
@all_apis
@pytest.mark.parametrize("comments", [False, True], ids=["plain", "with comments"])
async def test_silence_between_two_events_is_an_error_event(api: Api, *, comments: bool) -> None:
    policy = CommentPolicy(first_s=50, every_s=50, untouched=comments)
    async with stand(policy=WorkerPolicy(timers=TIMERS, comments=policy)) as at:
        at.plays(api.breaking(end=End.HANG))
        seen = await asked(at, api)
        assert (seen.status, seen.whole) == (200, True)
        begun = b"".join(api.begun) + comment_of(api) * 2 * comments
        assert seen.body.startswith(begun)
        assert api.told(seen.body.removeprefix(begun)) == api.names("backend_stalled", status=504)
        await at.cancelled(await at.accepted())
        record = await at.ended(Outcome.UPSTREAM_TIMEOUT)
        assert (record.ending, record.error_code) == (Ending.STALL_TIMEOUT, "backend_stalled")
        assert 120 <= record.total_s < 131
        assert [it.code for it in at.worker.failures] == ["backend_stalled"]


@pytest.mark.looptime
@all_apis
async def test_silence_inside_an_answer_in_one_piece_is_a_504_or_a_cut(api: Api) -> None:
    short = Script((JSON_HEAD % len(api.whole) + api.whole[:-3],), End.HANG)
    long = Script((JSON_HEAD % 2_000_000 + b"x" * 1_000_000,), End.HANG)
    async with stand(1, policy=WorkerPolicy(timers=TIMERS)) as at:
        at.plays(short, long)
        seen = await asked(at, api, stream=False)
        assert (seen.status, api.refused(seen)) == (504, api.names("backend_stalled", status=504))
        seen = await asked(at, api, stream=False)
        assert (seen.status, seen.whole) == (200, False)
        await at.worker.record(1)
        assert {it.outcome for it in at.worker.records} == {Outcome.UPSTREAM_TIMEOUT}
        for number in range(2):
            await at.cancelled(await at.a.exchange(number))


# --- half-open TCP, in real time ----------------------------------------------------------------------------------

SOON = TimerPolicy(first_event_s=0.5, client_write_s=0.5, upstream_idle_s=600)
STALLS = TimerPolicy(stall_s=1.0, silent_max_s=1.0)
KEPT = TimerPolicy(upstream_idle_s=600)


@all_apis
async def test_a_half_open_backend_is_found_in_the_middle_of_a_stream(api: Api) -> None:
    async with stand(policy=WorkerPolicy(timers=STALLS)) as at:
        at.plays(api.breaking(end=End.HANG))
        async with raw_client(at.worker.port) as client:
            await client.post(api.request(), path=api.path)
            await client.until(api.hello)
            for backend in at.backends:
                for connected in backend.sockets():
                    vanish(connected)
            seen = await client.answer(timeout_s=PATIENCE_S)
        begun = b"".join(api.begun)
        assert api.told(seen.body.removeprefix(begun)) == api.names("backend_stalled", status=504)
        await at.ended(Outcome.UPSTREAM_TIMEOUT)
        assert not (await at.accepted()).client_closed.is_set(), "the gone backend never hears of it"
        for backend in at.backends:
            backend.drop_connections(reset=True)


@all_apis
@stream_or_not
@pytest.mark.parametrize("size", [0, 20_000_000], ids=["short request", "long request"])
async def test_a_kept_connection_to_a_half_open_backend_is_found_and_the_request_is_not_replayed(
    api: Api, size: int, *, stream: bool
) -> None:
    """A long request fills every buffer on the way and is never taken; a short one is written and never answered."""
    async with stand(1, policy=WorkerPolicy(timers=KEPT)) as at:
        at.plays(api.good(stream=stream))
        assert (await asked(at, api, stream=stream)).status == 200
        at.worker.serve([backend_view(at.a.url)], policy=WorkerPolicy(timers=SOON))
        for connected in at.a.sockets():
            vanish(connected)
        seen = await asked(at, api, stream=stream, user="x" * size)
        assert (seen.status, api.refused(seen)) == (504, api.names("backend_silent", status=504))
        record = await at.worker.record(1)
        assert (record.outcome, record.attempts, at.asked) == (Outcome.UPSTREAM_TIMEOUT, 1, 1)
        at.a.drop_connections(reset=True)


@pytest.mark.looptime
@all_apis
@stream_or_not
async def test_a_backend_that_takes_no_connection_is_passed_over_or_a_503_in_the_time_for_connecting(
    api: Api, *, stream: bool
) -> None:
    with mute_listener() as port:
        async with stand(1) as at:
            mute = backend_view(f"http://127.0.0.1:{port}", "mute")
            policy = WorkerPolicy(timers=TimerPolicy(connect_s=2.0))
            at.worker.serve([mute], policy=policy)
            seen = await asked(at, api, stream=stream)
            assert (seen.status, api.refused(seen)) == (503, api.names("nothing_serving", status=503))
            assert int(seen.headers["retry-after"]) >= 1
            at.plays(api.good(stream=stream), api.good(stream=stream))
            at.worker.serve([mute, backend_view(at.a.url, "well")], policy=policy)
            for _ in range(2):
                assert (await asked(at, api, stream=stream)).status == 200
            assert {it.code for it in at.worker.failures} == {"connect_failed"}


@stream_or_not
async def test_a_half_open_client_is_found_in_the_time_for_writing_and_its_engine_is_cancelled(*, stream: bool) -> None:
    flood = chunk(b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 60_000 + b'"}}]}\n\n')
    pieces = (HEAD, *[flood] * 2000) if stream else (JSON_HEAD % 120_000_000, *[b"x" * 60_000] * 2000)
    async with stand(policy=WorkerPolicy(timers=SOON)) as at:
        at.plays(Script(pieces, End.HANG))
        async with raw_client(at.worker.port) as client:
            vanish(client.writer.get_extra_info("socket"))
            await client.post(CHAT.request(stream=stream))
            exchange = await at.accepted()
            await at.cancelled(exchange)
            record = await at.ended(Outcome.CLIENT_GONE)
        assert record.ending is Ending.CLIENT_STALLED
        assert exchange.sent_bytes < 40_000_000, "the engine was held back long before"
