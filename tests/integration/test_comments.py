"""While a stream is silent its client hears comments, where that was asked for; they are never counted."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.routing.snapshot import CommentPolicy, TimerPolicy, WorkerPolicy
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Ending, Outcome
from tests.fakes.backend import End, Script, ScriptedBackend
from tests.fakes.client import Answer, raw_client
from tests.fakes.worker import backend_view, running_worker
from tests.integration.test_relay_endings import DONE, HEAD, HELLO, REQUEST, ROLE, STOP, chunk

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

COMMENT = b": keep-alive\n\n"
EVENTS = (ROLE + HELLO, STOP + DONE)


async def silent(
    *,
    comments: CommentPolicy,
    before_s: float = 0.0,
    between_s: float = 0.0,
    timers: TimerPolicy | None = None,
    end: End = End.KEEP_ALIVE,
) -> tuple[Answer, Outcome, Ending, int]:
    """A stream that is silent before its first event and between two; the answer, its record and the events counted."""
    first, second = asyncio.Event(), asyncio.Event()
    async with ScriptedBackend() as backend, running_worker(idle_s=100_000) as worker:
        policy = WorkerPolicy(
            comments=comments, timers=timers or TimerPolicy(first_event_s=5000, stall_s=5000, silent_max_s=5000)
        )
        worker.serve([backend_view(backend.url)], policy=policy)
        last = (chunk(EVENTS[1]) + TERMINATOR,) if end is End.KEEP_ALIVE else ()
        backend.add(Script((HEAD, first, chunk(EVENTS[0]), second, *last), end))
        async with raw_client(worker.port) as client:
            loop = asyncio.get_running_loop()
            await client.post(REQUEST)
            exchange = await backend.exchange(0)
            assert exchange is not None
            loop.call_later(before_s, first.set)
            loop.call_later(before_s + between_s, second.set)
            seen = await client.answer(timeout_s=100_000)
        record = await worker.record()
        assert record.summary is not None or record.outcome is not Outcome.OK
        return seen, record.outcome, record.ending, record.summary.events if record.summary else 0


async def test_an_untouched_stream_has_none_by_default() -> None:
    seen, outcome, *_ = await silent(comments=CommentPolicy(), before_s=100, between_s=100)
    assert (outcome, seen.body) == (Outcome.OK, b"".join(EVENTS))


async def test_they_come_before_the_first_event_and_between_two_and_are_not_counted() -> None:
    policy = CommentPolicy(first_s=20, every_s=10, untouched=True)
    seen, outcome, _, events = await silent(comments=policy, before_s=45, between_s=35)
    assert outcome is Outcome.OK
    before, _, after = seen.body.partition(EVENTS[0])
    # 20 s to the first one and 10 s from there on; each is at most a quarter late.
    assert before == COMMENT * 3
    assert after == COMMENT * 3 + EVENTS[1]
    assert events == 4


@pytest.mark.parametrize("first_s, every_s, before, after", [(0, 10, 0, 3), (10, 0, 1, 0)])
async def test_each_of_the_two_can_be_off(first_s: float, every_s: float, before: int, after: int) -> None:
    comments = CommentPolicy(first_s=first_s, every_s=every_s, untouched=True)
    seen, outcome, *_ = await silent(comments=comments, before_s=35, between_s=35)
    assert outcome is Outcome.OK
    assert seen.body == COMMENT * before + EVENTS[0] + COMMENT * after + EVENTS[1]


async def test_after_a_comment_a_failure_is_told_inside_the_stream() -> None:
    policy = CommentPolicy(first_s=10, every_s=10, untouched=True)
    seen, outcome, ending, _ = await silent(
        comments=policy, before_s=1000, timers=TimerPolicy(first_event_s=30, stall_s=5000, silent_max_s=5000)
    )
    assert (seen.status, outcome, ending) == (200, Outcome.UPSTREAM_TIMEOUT, Ending.FIRST_EVENT_TIMEOUT)
    assert seen.body.startswith(COMMENT)
    assert b'"code":"backend_silent"' in seen.body
    assert seen.body.endswith(DONE)
    assert seen.whole


async def test_comments_do_not_keep_a_stalled_engine_alive() -> None:
    policy = CommentPolicy(first_s=10, every_s=10, untouched=True)
    seen, outcome, ending, _ = await silent(
        comments=policy, between_s=1000, timers=TimerPolicy(first_event_s=5000, stall_s=60, silent_max_s=60)
    )
    assert (outcome, ending) == (Outcome.UPSTREAM_TIMEOUT, Ending.STALL_TIMEOUT)
    assert 4 <= seen.body.count(COMMENT) <= 6
