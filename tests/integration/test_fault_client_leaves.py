"""A client that closes or resets, at any moment, on any API: the backend's connection is closed, nothing is retried.

The expected end: the engine is told at once by its connection, the record says ``client_gone``, no backend is blamed,
no other one is asked, and nothing stays in flight.  How soon is measured by ``python -m benchmarks.leaving``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from gateway.core.admission.keys import Key, KeyLimits, digest_of
from gateway.core.link.messages import RequestRecord
from gateway.core.routing.snapshot import CommentPolicy, PoolView, TimerPolicy, WorkerPolicy
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Ending, Outcome
from tests.fakes.apis import APIS, CHAT, HEAD, JSON_HEAD, Api, chunk
from tests.fakes.backend import End, Script
from tests.fakes.client import RawClient, raw_client
from tests.fakes.fault_stand import LEAVE, Stand, stand
from tests.fakes.half_open import mute_listener
from tests.fakes.worker import backend_view

pytestmark = pytest.mark.asyncio

Leave = Callable[[RawClient], None]

all_apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
ways_to_leave = pytest.mark.parametrize("leave", LEAVE, ids=["closes", "resets"])
stream_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

MOMENTS: Final = ("before headers", "silent prefill", "mid-stream", "inside an event")


def pieces(api: Api, moment: str, *, stream: bool) -> tuple[bytes, ...]:
    """What the backend has sent when the client leaves."""
    head = HEAD if stream else JSON_HEAD % 2_000_000
    begun = tuple(map(chunk, api.begun)) if stream else (b'{"x":"' + b"x" * 500_000,)
    match moment:
        case "before headers":
            return ()
        case "silent prefill":
            return (head,)
        case "mid-stream":
            return (head, *begun)
        case _:
            return (head, *begun, chunk(api.hello)[:30] if stream else b"")


async def gone(at: Stand, *, asked: int = 1) -> RequestRecord:
    record = await at.ended(Outcome.CLIENT_GONE, asked=asked)
    assert record.ending is Ending.CLIENT_GONE
    assert at.worker.failures == [], "a client that leaves is nobody's fault"
    return record


@all_apis
@stream_or_not
@ways_to_leave
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_client_that_leaves_has_its_backend_closed(
    api: Api, moment: str, leave: Leave, *, stream: bool
) -> None:
    async with stand() as at:
        at.plays(Script(pieces(api, moment, stream=stream), End.HANG))
        async with raw_client(at.worker.port) as client:
            await client.post(api.request(stream=stream), path=api.path)
            exchange = await at.accepted()
            await exchange.played.wait()
            if moment in MOMENTS[2:]:
                await client.until(api.hello if stream else b"xxx")
            leave(client)
            await at.cancelled(exchange)
        await gone(at)


@pytest.mark.looptime
@all_apis
@stream_or_not
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_client_that_leaves_leaves_no_timer_behind(api: Api, moment: str, *, stream: bool) -> None:
    """The stand looks at timers where the loop can tell of them, which uvloop does not."""
    comments = CommentPolicy(first_s=30, every_s=30, untouched=True)
    async with stand(policy=WorkerPolicy(timers=TimerPolicy(total_s=900), comments=comments)) as at:
        at.plays(Script(pieces(api, moment, stream=stream), End.HANG))
        async with raw_client(at.worker.port) as client:
            await client.post(api.request(stream=stream), path=api.path)
            exchange = await at.accepted()
            await exchange.played.wait()
            client.close()
            await at.cancelled(exchange)
        await gone(at)


@all_apis
@stream_or_not
@ways_to_leave
async def test_a_client_that_leaves_while_queued_is_taken_out_and_its_place_goes_on(
    api: Api, leave: Leave, *, stream: bool
) -> None:
    """No backend hears of it; the one that came after it is next, and gets the only place in the queue at once."""
    free = asyncio.Event()
    async with stand(1, pool=PoolView(name="main", concurrency=1, queue=1)) as at:
        worker = at.worker
        at.plays(Script((free, *api.good().pieces)), api.good())
        async with (
            raw_client(worker.port) as first,
            raw_client(worker.port) as leaver,
            raw_client(worker.port) as next_,
        ):
            await first.post(api.request(), path=api.path)
            await at.accepted()
            await leaver.post(api.request(stream=stream), path=api.path)
            await worker.until(lambda: worker.gate.flows() == {"main": {"": (1, 1)}})
            leave(leaver)
            await worker.until(lambda: worker.gate.flows() == {"main": {"": (0, 1)}})
            record = await gone(at)
            assert (record.backend, record.attempts) == ("", 0)
            assert record.queue_s is not None
            await next_.post(api.request(), path=api.path)
            await worker.until(lambda: worker.gate.flows() == {"main": {"": (1, 1)}})
            free.set()
            for client in (first, next_):
                assert (await client.answer()).body == api.stream
        assert [it.outcome for it in worker.records] == [Outcome.CLIENT_GONE, Outcome.OK, Outcome.OK]
        assert at.asked == 2


@ways_to_leave
async def test_leaving_in_the_moment_of_one_s_turn_gives_the_place_back(leave: Leave) -> None:
    """The place is given and the client is gone in the same turn of the loop: every distance of the two is tried."""
    async with stand(1, pool=PoolView(name="main", concurrency=1)) as at:
        worker = at.worker
        for turns in range(-12, 13):
            free, whole = asyncio.Event(), (HEAD, *map(chunk, (*CHAT.begun, *CHAT.ending)))
            at.plays(Script((*whole, free, TERMINATOR)), *[CHAT.good()] * 2)
            async with raw_client(worker.port) as first, raw_client(worker.port) as leaver:
                await first.post(CHAT.request())
                await first.until(CHAT.stream)
                await leaver.post(CHAT.request())
                await worker.until(lambda: worker.gate.flows() == {"main": {"": (1, 1)}})
                (free.set if turns > 0 else partial(leave, leaver))()
                for _ in range(abs(turns)):
                    await asyncio.sleep(0)
                (partial(leave, leaver) if turns > 0 else free.set)()
                await first.answer()
            await worker.until(lambda: worker.gate.flows() == {} and worker.desk.in_flight == {})
            async with raw_client(worker.port) as after:
                await after.post(CHAT.request())
                assert (await after.answer()).body == CHAT.stream, "the place is there for the next one"
            at.a._scripts.clear()


@all_apis
@stream_or_not
async def test_a_client_that_leaves_while_a_connection_is_made_leaves_none_behind(api: Api, *, stream: bool) -> None:
    """A backend that does not answer a connect: nothing was sent, so there is nothing to close but the attempt."""
    with mute_listener() as port:
        async with stand(0) as at:
            policy = WorkerPolicy(timers=TimerPolicy(connect_s=600))
            at.worker.serve([backend_view(f"http://127.0.0.1:{port}")], policy=policy)
            async with raw_client(at.worker.port) as client:
                await client.post(api.request(stream=stream), path=api.path)
                await at.worker.until(lambda: at.worker.desk.in_flight == {"a": 1})
            record = await gone(at, asked=0)
            assert record.sent_s is None


@all_apis
@ways_to_leave
async def test_a_client_that_leaves_after_comments_in_the_silence_has_its_backend_closed(
    api: Api, leave: Leave
) -> None:
    comments = CommentPolicy(first_s=0.02, every_s=0.02, untouched=True)
    async with stand(policy=WorkerPolicy(comments=comments)) as at:
        at.plays(Script((HEAD,), End.HANG))
        async with raw_client(at.worker.port) as client:
            await client.post(api.request(), path=api.path)
            await client.until(b"\n\n")
            leave(client)
            await at.cancelled(await at.accepted())
        record = await gone(at)
        assert record.status == 200


@all_apis
@stream_or_not
@ways_to_leave
async def test_a_client_that_leaves_gives_back_what_its_key_held(api: Api, leave: Leave, *, stream: bool) -> None:
    """One request at once: each next one is let in as soon as the one before has left, wherever that was."""
    key = Key(id="k", digest=digest_of("pk-k"), limits=KeyLimits(concurrency=1, requests_per_minute=50))
    async with stand(1, keys=[key], pool=PoolView(name="main", concurrency=1)) as at:
        headers = {"Authorization": "Bearer pk-k"}
        for number, moment in enumerate(MOMENTS):
            at.plays(Script(pieces(api, moment, stream=stream), End.HANG))
            async with raw_client(at.worker.port) as client:
                await client.post(api.request(stream=stream), path=api.path, headers=headers)
                exchange = await at.a.exchange(number)
                await exchange.played.wait()
                leave(client)
                await at.cancelled(exchange)
            assert (await at.worker.record(number)).outcome is Outcome.CLIENT_GONE
        at.plays(api.good())
        async with raw_client(at.worker.port) as client:
            await client.post(api.request(), path=api.path, headers=headers)
            assert (await client.answer()).body == api.stream
