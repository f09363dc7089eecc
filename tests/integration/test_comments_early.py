"""Comments before any backend has answered: in the queue, in a hold, in silence; and how it may end then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.core.admission.keys import Key, KeyDefaults, digest_of
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import CommentPolicy, PoolView, TimerPolicy, WorkerPolicy
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Ending, Outcome
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, RawClient, raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_relay_endings import DONE, HEAD, HELLO, REQUEST, ROLE, STOP, chunk

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

COMMENT = b": keep-alive\n\n"
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
EVENTS = ROLE + HELLO + STOP + DONE
WHOLE = HEAD + chunk(EVENTS) + TERMINATOR
ASKED = CommentPolicy(first_s=10, every_s=10, untouched=True)
PATIENT = TimerPolicy(first_event_s=5000, stall_s=5000, silent_max_s=5000)
ENGINE_ERROR = b'{"error": {"message": "no such\\nthing",\n "type": "BadRequestError", "param": "n", "code": 400}}'


@contextlib.asynccontextmanager
async def stage(
    *names: str,
    comments: CommentPolicy = ASKED,
    timers: TimerPolicy = PATIENT,
    state: BackendState = BackendState.SERVING,
    stopping: str = "",
    keys: tuple[Key, ...] = (),
    **rules: Any,
) -> AsyncIterator[tuple[FakeWorker, dict[str, ScriptedBackend]]]:
    """A worker with backends of these names (or one), which do as they are told later."""
    async with contextlib.AsyncExitStack() as stack:
        backends = {name: await stack.enter_async_context(ScriptedBackend()) for name in names or ("a",)}
        worker = await stack.enter_async_context(running_worker(idle_s=100_000, with_keys=bool(keys)))
        if keys:
            worker.know(*keys)
        worker.serve(
            [backend_view(it.url, name, state=state, stopping=name == stopping) for name, it in backends.items()],
            policy=WorkerPolicy(comments=comments, timers=timers),
            pools=[PoolView(name="main", **rules)],
        )
        yield worker, backends


async def answered(worker: FakeWorker, **given: Any) -> Answer:
    """The answer to one request."""
    async with raw_client(worker.port) as client:
        await client.post(REQUEST, **given)
        return await client.answer(timeout_s=100_000)


def later(seconds: float) -> asyncio.Event:
    """Set in so many seconds."""
    gate = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, gate.set)
    return gate


async def test_an_engine_that_is_silent_before_its_head_is_bridged_and_its_answer_follows_whole() -> None:
    async with stage() as (worker, backends):
        backends["a"].add(Script((later(35), WHOLE)), Script((WHOLE,)))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer(timeout_s=100_000)
            await client.post(REQUEST)
            again = await client.answer()
        assert (seen.status, seen.whole, seen.body) == (200, True, COMMENT * 3 + EVENTS)
        assert seen.headers["content-type"].startswith("text/event-stream")
        assert "x-request-id" in seen.headers
        assert "x-gateway-backend" not in seen.headers, "none had answered when the head went out"
        assert again.headers["x-gateway-backend"] == "a", "a quick answer has the head that it always had"
        record = await worker.record()
        assert (record.outcome, record.status, record.backend) == (Outcome.OK, 200, "a")
        assert record.summary is not None
        assert record.summary.events == 4
        assert record.response_bytes > len(seen.body)


@pytest.mark.parametrize(
    "comments",
    [CommentPolicy(first_s=10, every_s=10), CommentPolicy(first_s=0, every_s=10, untouched=True)],
    ids=["untouched-and-not-asked-for", "not-before-the-first-event"],
)
async def test_without_being_asked_for_none_comes_before_the_first_event(comments: CommentPolicy) -> None:
    async with stage(comments=comments, timers=TimerPolicy(first_event_s=100)) as (worker, backends):
        backends["a"].add(Script((later(1000), WHOLE)))
        seen = await answered(worker)
        assert (seen.status, seen.error["code"]) == (504, "backend_silent")


async def test_an_answer_in_one_piece_has_none() -> None:
    async with stage() as (worker, backends):
        backends["a"].add(Script((later(100), answer(b'{"choices":[]}'))))
        async with raw_client(worker.port) as client:
            await client.post({**REQUEST, "stream": False})
            seen = await client.answer(timeout_s=1000)
        assert (seen.status, seen.body) == (200, b'{"choices":[]}')


@pytest.mark.parametrize("mode, wanted", [("drop", None), (None, True)], ids=["drop", "key"])
async def test_a_mode_that_hides_and_a_key_ask_for_them_too(mode: str | None, wanted: bool | None) -> None:
    key = Key(id="k", digest=digest_of("pk-k"), defaults=KeyDefaults(comments=wanted))
    async with stage(comments=CommentPolicy(first_s=10, every_s=10), keys=(key,)) as (worker, backends):
        backends["a"].add(Script((later(15), WHOLE)))
        given = {"Authorization": "Bearer pk-k"} | ({"X-Gateway-Reasoning": mode} if mode else {})
        assert (await answered(worker, headers=given)).body.startswith(COMMENT)


async def test_a_key_can_refuse_what_the_settings_ask_for() -> None:
    key = Key(id="k", digest=digest_of("pk-k"), defaults=KeyDefaults(comments=False))
    async with stage(keys=(key,)) as (worker, backends):
        backends["a"].add(Script((later(15), WHOLE)))
        assert (await answered(worker, headers={"Authorization": "Bearer pk-k"})).body == EVENTS


async def test_where_reasoning_goes_aside_its_path_is_in_our_head() -> None:
    async with stage() as (worker, backends):
        backends["a"].add(Script((later(15), WHOLE)))
        seen = await answered(worker, headers={"X-Gateway-Reasoning": "side"})
        assert seen.body == COMMENT + EVENTS
        assert seen.headers["x-gateway-reasoning-stream"].startswith("/v1/reasoning/")


async def test_a_client_of_http_1_0_gets_it_without_chunks() -> None:
    async with stage() as (worker, backends):
        backends["a"].add(Script((later(15), WHOLE)))
        seen = await answered(worker, version="1.0")
        assert seen.body == COMMENT + EVENTS
        assert "transfer-encoding" not in seen.headers


@pytest.mark.parametrize("status, outcome", [(400, Outcome.REJECTED), (500, Outcome.UPSTREAM_ERROR)])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_an_error_status_of_the_engine_becomes_an_event_of_the_api(
    status: int, outcome: Outcome, path: str
) -> None:
    async with stage() as (worker, backends):
        backends["a"].add(Script((later(15), answer(ENGINE_ERROR, status=status))))
        async with raw_client(worker.port) as client:
            await client.post({**REQUEST, "input": "hi", "max_tokens": 9}, path=path)
            seen = await client.answer(timeout_s=1000)
        assert (seen.status, seen.whole) == (200, True)
        first, *_ = seen.events
        assert first == (PING if path == "/v1/messages" else COMMENT)
        told = next(it for it in seen.events if b"no such" in it)
        assert told.startswith(b"data: " if path == "/v1/chat/completions" else b"event: error\ndata: ")
        assert told.count(b"\n") == (2 if path == "/v1/chat/completions" else 3), "one line of data"
        assert seen.body.endswith(DONE) is (path == "/v1/chat/completions")
        record = await worker.record()
        assert (record.outcome, record.ending, record.status) == (outcome, Ending.BAD_STATUS, 200)


async def test_an_error_that_cannot_be_read_is_told_by_its_status() -> None:
    async with stage() as (worker, backends):
        backends["a"].add(Script((later(15), answer(b"Internal Server Error", status=500, content_type="text/plain"))))
        seen = await answered(worker)
        assert seen.error["message"] == "the backend answered with status 500"
        assert seen.body.endswith(DONE)


async def test_an_error_that_has_begun_in_time_keeps_its_status() -> None:
    async with stage() as (worker, backends):
        whole = answer(ENGINE_ERROR, status=400)
        backends["a"].add(Script((whole[:-9], later(35), whole[-9:])))
        seen = await answered(worker)
        assert (seen.status, seen.body) == (400, ENGINE_ERROR)


@pytest.mark.parametrize(
    "end, ending, code",
    [(End.CLOSE, Ending.EOF, "backend_died"), (End.HANG, Ending.FIRST_EVENT_TIMEOUT, "backend_silent")],
    ids=["dies", "hangs"],
)
async def test_a_backend_that_never_answers_is_told_inside_the_stream(end: End, ending: Ending, code: str) -> None:
    async with stage(timers=TimerPolicy(first_event_s=100, stall_s=5000, silent_max_s=5000)) as (worker, backends):
        backends["a"].add(Script((later(25),), end))
        seen = await answered(worker)
        assert (seen.status, seen.whole, seen.error["code"]) == (200, True, code)
        assert seen.body.startswith(COMMENT * 2)
        assert seen.body.endswith(DONE)
        record = await worker.record()
        assert (record.ending, record.error_code, record.status) == (ending, code, 200)


async def test_a_busy_backend_is_still_passed_over_after_our_own_head() -> None:
    seen = Answer()
    async with stage("a", "b") as (worker, backends):
        busy = answer(b"{}", status=503)
        backends["a"].add(Script((later(15), busy)), Script((WHOLE,)))
        backends["b"].add(Script((WHOLE,)), Script((WHOLE,)))
        while not backends["a"].exchanges:  # whoever is chosen first
            seen = await answered(worker)
        record = worker.records[-1]
        assert (record.attempts, record.backend, record.outcome) == (2, "b", Outcome.OK)
        assert seen.body == COMMENT + EVENTS


async def test_an_abort_of_a_backend_that_we_stop_goes_elsewhere_after_our_own_head() -> None:
    abort = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n'
    async with stage("a", "b", stopping="a") as (worker, backends):
        backends["a"].add(*[Script((HEAD, later(25), chunk(ROLE + abort + DONE) + TERMINATOR)) for _ in range(2)])
        backends["b"].add(*[Script((WHOLE,))] * 2)
        seen = Answer()
        while not backends["a"].exchanges:
            seen = await answered(worker)
        assert seen.body == COMMENT * 2 + EVENTS
        record = worker.records[-1]
        assert (record.attempts, record.backend, record.outcome) == (2, "b", Outcome.OK)


# --- before a backend is chosen ---


@contextlib.asynccontextmanager
async def one_in_the_queue(worker: FakeWorker, backend: ScriptedBackend) -> AsyncIterator[RawClient]:
    """A client whose request waits behind another one that never ends."""
    backend.add(Script((HEAD, chunk(ROLE)), End.HANG))
    async with raw_client(worker.port) as first, raw_client(worker.port) as second:
        await first.post(REQUEST)
        await first.until(ROLE)
        await second.post(REQUEST)
        yield second


def waits(worker: FakeWorker) -> int:
    return sum(waiting for waiting, _ in worker.gate.flows().get("main", {}).values())


async def test_one_that_waits_too_long_is_told_so_inside_the_stream() -> None:
    async with (
        stage(concurrency=1, queue_s=35) as (worker, backends),
        one_in_the_queue(worker, backends["a"]) as client,
    ):
        seen = await client.answer(timeout_s=1000)
        assert (seen.status, seen.whole, seen.error["code"]) == (200, True, "queue_timeout")
        assert seen.body.startswith(COMMENT * 3)
        assert seen.body.endswith(DONE)
        record = await worker.record()
        assert (record.outcome, record.status, record.error_code) == (Outcome.REJECTED, 200, "queue_timeout")
        assert record.backend == ""
        assert worker.gate.refusals["main|queue_timeout"] == 1


async def test_one_that_leaves_while_it_waits_is_gone_from_the_queue() -> None:
    async with stage(concurrency=1, queue_s=5000) as (worker, backends), one_in_the_queue(worker, backends["a"]) as it:
        await it.until(COMMENT * 2, timeout_s=1000)
        assert waits(worker) == 1
        it.writer.close()
        record = await worker.record()
        assert record.outcome is Outcome.CLIENT_GONE
        assert waits(worker) == 0
        assert len(backends["a"].exchanges) == 1


async def test_the_gateway_s_stop_is_told_to_those_who_wait() -> None:
    async with stage(concurrency=1, queue_s=5000) as (worker, backends), one_in_the_queue(worker, backends["a"]) as it:
        await it.until(COMMENT, timeout_s=1000)
        worker.desk.stopping = True
        worker.pipeline.end_all()
        seen = await it.answer(timeout_s=1000)
        assert seen.error["code"] == "shutting_down"
        assert seen.body.endswith(DONE)


async def test_one_that_is_held_for_a_backend_hears_something_and_is_served_when_it_is_back() -> None:
    async with stage(hold_s=100, state=BackendState.LOADING) as (worker, backends):
        backends["a"].add(Script((WHOLE,)))
        views = [backend_view(backends["a"].url)]
        pools, policy = worker.desk.snapshot.pools, worker.desk.snapshot.policy
        asyncio.get_running_loop().call_later(25, lambda: worker.serve(views, pools=pools, policy=policy))
        seen = await answered(worker)
        assert seen.body == COMMENT * 2 + EVENTS
        assert (await worker.record()).outcome is Outcome.OK


async def test_one_that_is_held_in_vain_is_told_so_inside_the_stream() -> None:
    async with stage(hold_s=35, state=BackendState.LOADING) as (worker, _):
        seen = await answered(worker)
        assert (seen.status, seen.error["code"]) == (200, "nothing_serving")
        assert (await worker.record()).outcome is Outcome.REJECTED


async def test_one_that_leaves_a_silent_engine_frees_it() -> None:
    async with stage() as (worker, backends):
        backends["a"].add(Script((), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            await client.until(COMMENT, timeout_s=1000)
        exchange = await backends["a"].exchange(0)
        async with asyncio.timeout(1000):
            await exchange.client_closed.wait()
        record = await worker.record()
        assert (record.outcome, record.status) == (Outcome.CLIENT_GONE, 200)
