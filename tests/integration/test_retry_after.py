"""What ``Retry-After`` says is so: who comes back then is served, and who comes much earlier is refused again.

In fake time, with an engine that takes as long for each answer as the test says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway import aio
from gateway.core.admission.keys import Key, KeyLimits, digest_of
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import LimitPolicy, PoolView, WorkerPolicy
from tests.fakes.backend import Request, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

TOKENS = 100
"""What each answer costs."""

MIDNIGHT_WALL = 1_700_006_400.0


def now() -> float:
    return asyncio.get_running_loop().time()


class SlowEngine:
    """Takes ``takes_s`` for each answer, however many it works on."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s
        self.backend = ScriptedBackend(answerer=self._answer)

    def _answer(self, _: Request) -> Script:
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(self.takes_s, gate.set)
        usage = {"prompt_tokens": 1, "completion_tokens": TOKENS - 1, "total_tokens": TOKENS}
        choice = {"index": 0, "message": {"role": "assistant", "content": "y"}, "finish_reason": "stop"}
        return Script((gate, answer(json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode())))


@contextlib.asynccontextmanager
async def stage(
    *, takes_s: float = 0.0, wall: float = 0.0, key: KeyLimits | None = None, **rules: Any
) -> AsyncIterator[tuple[SlowEngine, FakeWorker]]:
    """A worker and an engine; with ``key`` every request is of one key with these limits."""
    engine, began = SlowEngine(takes_s), now()
    async with (
        engine.backend,
        running_worker(idle_s=100_000, with_keys=key is not None, wall=lambda: wall + now() - began) as worker,
    ):
        if key is not None:
            worker.know(Key(id="k", digest=digest_of("pk-k"), limits=key))
        worker.serve([backend_view(engine.backend.url)], pools=[PoolView(name="main", **rules)])
        yield engine, worker


async def ask(worker: FakeWorker, **headers: str) -> Answer:
    given = {"Authorization": "Bearer pk-k", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with raw_client(worker.port) as client:
        await client.post({"model": "tiny", "messages": []}, headers=given)
        return await client.answer(timeout_s=100_000)


def asking(worker: FakeWorker) -> asyncio.Task[Answer]:
    return aio.spawn(ask(worker), name="client")


async def at(moment: float) -> None:
    """Wait until so many seconds after the fake clock's zero of this test."""
    await asyncio.sleep(max(0.0, moment - now()))


def told(seen: Answer, status: int, code: str, param: str | None = None) -> int:
    """The time in an answer that must be this error."""
    assert (seen.status, seen.error["code"], seen.error["param"]) == (status, code, param)
    return int(seen.headers["retry-after"])


async def test_a_key_s_requests_a_minute_have_room_again_when_it_says_and_not_before() -> None:
    async with stage(key=KeyLimits(requests_per_minute=2)) as (_, worker):
        began = now()
        assert (await ask(worker)).status == 200
        await at(began + 20)
        assert (await ask(worker)).status == 200
        await at(began + 25)
        after_s = told(await ask(worker), 429, "quota_exceeded", "requests_per_minute")
        assert 35 <= after_s <= 36, "sixty seconds after the first one"
        await at(began + 25 + after_s - 2)
        told(await ask(worker), 429, "quota_exceeded", "requests_per_minute")
        await at(began + 25 + after_s)
        assert (await ask(worker)).status == 200


async def test_a_key_s_tokens_a_minute_have_room_again_when_it_says_and_not_before() -> None:
    async with stage(key=KeyLimits(tokens_per_minute=TOKENS + 50)) as (_, worker):
        began = now()
        for moment in (0, 30):
            await at(began + moment)
            assert (await ask(worker)).status == 200
        await at(began + 31)
        after_s = told(await ask(worker), 429, "quota_exceeded", "tokens_per_minute")
        assert 29 <= after_s <= 30, "sixty seconds after the tokens of the first one"
        await at(began + 31 + after_s - 2)
        told(await ask(worker), 429, "quota_exceeded", "tokens_per_minute")
        await at(began + 31 + after_s)
        assert (await ask(worker)).status == 200


async def test_a_key_s_tokens_a_day_have_room_again_at_midnight() -> None:
    async with stage(key=KeyLimits(tokens_per_day=TOKENS), wall=MIDNIGHT_WALL - 3600) as (_, worker):
        began = now()
        assert (await ask(worker)).status == 200
        await at(began + 100)
        after_s = told(await ask(worker), 429, "quota_exceeded", "tokens_per_day")
        assert 3499 <= after_s <= 3501
        await at(began + 100 + after_s + 1)
        assert (await ask(worker)).status == 200


@pytest.mark.parametrize("takes_s", [3.0, 12.0])
async def test_a_key_s_requests_at_once_are_told_the_pace_at_which_they_end(takes_s: float) -> None:
    async with stage(key=KeyLimits(concurrency=1), takes_s=takes_s) as (_, worker):
        for _ in range(4):
            assert (await ask(worker)).status == 200
        busy = asking(worker)
        await worker.until(lambda: worker.desk.holding == 1)
        after_s = told(await ask(worker), 429, "quota_exceeded", "concurrency")
        assert takes_s <= after_s <= takes_s + 2
        await asyncio.sleep(after_s)
        assert (await ask(worker)).status == 200
        assert (await busy).status == 200


@pytest.mark.parametrize("takes_s, concurrency, places", [(2.0, 1, 3), (6.0, 2, 4), (20.0, 1, 1)])
async def test_a_full_queue_is_told_when_a_newcomer_s_turn_would_be(
    takes_s: float, concurrency: int, places: int
) -> None:
    async with stage(takes_s=takes_s, concurrency=concurrency, queue=places, queue_s=5000) as (_, worker):
        crowd = [asking(worker) for _ in range(concurrency + places)]
        for _ in range(4):  # steady: whoever is served has a successor in the queue
            done, crowd_left = await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
            crowd = [*crowd_left, *(asking(worker) for _ in done)]
            await worker.until(lambda: queued(worker) == places)
        after_s = told(await ask(worker), 503, "queue_full")
        turn_s = (places + 1) * takes_s / concurrency
        assert turn_s * 0.9 <= after_s <= turn_s * 1.2 + 1
        await asyncio.sleep(after_s)
        assert {(await it).status for it in crowd} == {200}
        assert (await ask(worker)).status == 200


async def test_a_gateway_that_is_full_tells_the_pace_at_which_places_become_free() -> None:
    async with stage(takes_s=20) as (engine, worker):
        views, policy = [backend_view(engine.backend.url)], WorkerPolicy(limits=LimitPolicy(in_flight=2))
        worker.serve(views, policy=policy)
        began = now()
        first = asking(worker)
        await at(began + 10)
        open_ = [first, asking(worker)]  # from here on one ends every ten seconds, and the next one comes
        await worker.until(lambda: worker.desk.holding == 2)
        assert told(await ask(worker), 429, "overloaded") == 1, "nobody knows yet how long they take"
        for moment in (21, 32, 43):
            await at(began + moment)
            open_.append(asking(worker))
            await worker.until(lambda: worker.desk.holding == 2)
        assert 9 <= told(await ask(worker), 429, "overloaded") <= 12
        assert [(await it).status for it in open_] == [200] * 5
        assert worker.desk.crowd is None, "nothing is counted any more"


def queued(worker: FakeWorker) -> int:
    return sum(waiting for waiting, _ in worker.gate.flows().get("main", {}).values())


@pytest.mark.parametrize(
    "rules, headers, status, code",
    [
        ({"queue_s": 5.0}, {}, 503, "queue_timeout"),
        ({"deadline_s": 5.0}, {}, 504, "deadline_exceeded"),
        ({}, {"X_Gateway_Deadline": "5"}, 504, "deadline_exceeded"),
    ],
    ids=["longest wait", "pool's deadline", "its own deadline"],
)
async def test_whoever_waited_in_vain_is_told_the_pace_of_the_queue(
    rules: dict[str, Any], headers: dict[str, str], status: int, code: str
) -> None:
    async with stage(takes_s=20.0, concurrency=1, **rules) as (_, worker):
        for _ in range(2):
            assert (await ask(worker)).status == 200
        busy = asking(worker)
        await worker.until(lambda: worker.desk.holding == 1)
        after_s = told(await ask(worker, **headers), status, code)
        assert 18 <= after_s <= 22, "an answer takes 20 s"
        await asyncio.sleep(after_s)
        assert (await busy).status == 200
        assert (await ask(worker)).status == 200


@pytest.mark.parametrize("away_s", [2.0, 30.0])
async def test_while_all_backends_are_down_it_is_the_time_to_the_next_look_at_them(away_s: float) -> None:
    async with stage() as (engine, worker):
        policy = WorkerPolicy(away_s=away_s)
        worker.serve([backend_view(engine.backend.url, state=BackendState.EJECTED)], policy=policy)
        assert told(await ask(worker), 503, "nothing_serving") == away_s
        async with raw_client(worker.port) as client:
            await client.send(b"GET /ready HTTP/1.1\r\nHost: g\r\n\r\n")
            assert told(await client.answer(), 503, "nothing_serving") == away_s
        worker.serve([backend_view(engine.backend.url)], policy=policy)
        await engine.backend.stop()
        assert told(await ask(worker), 503, "nothing_serving") == away_s, "none could be reached"


async def test_a_pool_without_a_backend_to_wait_for_says_so_after_the_hold() -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        view = backend_view(engine.backend.url, state=BackendState.EJECTED)
        worker.serve([view], pools=[PoolView(name="main", hold_s=10.0)], policy=WorkerPolicy(away_s=7.0))
        assert told(await ask(worker), 503, "nothing_serving") == 7
