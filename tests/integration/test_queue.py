"""The queue over sockets: who waits, for how long, who is next, and that nothing is left of those who leave."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import aio
from gateway.core.admission.keys import Key, digest_of
from gateway.core.link.messages import NewSnapshot, Quarantine, Shares
from gateway.core.request.body import parse_body
from gateway.core.request.fingerprint import fingerprint
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import PoolView, Snapshot
from gateway.core.stream.summary import Dialect, Ending, Outcome
from gateway.errors import NothingServing
from gateway.proxy.gate import Gate
from gateway.proxy.route import Desk
from gateway.proxy.visit import Visit
from tests.fakes.backend import Request, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker

pytestmark = pytest.mark.asyncio

ASK: dict[str, Any] = {"model": "tiny", "messages": []}
USAGE: dict[str, int] = {"prompt_tokens": 1, "completion_tokens": 99, "total_tokens": 100}
CHOICE: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": "y"}, "finish_reason": "stop"}
ANSWER = json.dumps({"id": "c", "choices": [CHOICE], "usage": USAGE}).encode()


class Engine:
    """A backend whose answers wait until the test lets them go, in the order in which the requests came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gates: list[asyncio.Event] = []
        self.backend = ScriptedBackend(answerer=self._answer)
        self.came = asyncio.Condition()

    def _answer(self, request: Request) -> Script:
        self.asked.append(json.loads(request.body).get("user", ""))
        gate = asyncio.Event()
        self.gates.append(gate)
        return Script((gate, answer(ANSWER)))

    async def has(self, count: int) -> None:
        """Wait until so many requests have come in all."""
        await self.backend.exchange(count - 1)

    def let_go(self, number: int) -> None:
        self.gates[number].set()


@asynccontextmanager
async def stage(
    *, keys: tuple[Key, ...] = (), lone: bool = True, state: BackendState = BackendState.SERVING, **rules: Any
) -> AsyncIterator[tuple[Engine, FakeWorker]]:
    engine = Engine()
    async with engine.backend, running_worker(with_keys=bool(keys), lone=lone, connections=3000) as worker:
        if keys:
            worker.know(*keys)
        view = backend_view(engine.backend.url, state=state)
        worker.serve([view], pools=[PoolView(name="main", **rules)])
        yield engine, worker


async def ask(worker: FakeWorker, user: str = "", *, key: str = "", **headers: str) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if key:
        given["Authorization"] = f"Bearer {key}"
    async with raw_client(worker.port) as client:
        await client.post({**ASK, "user": user}, headers=given)
        return await client.answer(timeout_s=45)


def asking(worker: FakeWorker, user: str = "", *, key: str = "", **headers: str) -> asyncio.Task[Answer]:
    return aio.spawn(ask(worker, user, key=key, **headers), name=user)


async def waiting(worker: FakeWorker, count: int) -> None:
    """Wait until so many requests wait in the queue."""
    await worker.until(lambda: sum(it[0] for it in worker.gate.flows().get("main", {}).values()) == count)


def key(key_id: str, **given: Any) -> Key:
    return Key(id=key_id, digest=digest_of(f"pk-{key_id}"), **given)


async def test_over_the_bound_of_a_backend_requests_wait_and_are_served_in_order() -> None:
    async with stage(concurrency=1) as (engine, worker):
        first = asking(worker, "0")
        await engine.has(1)
        others = []
        for at in (1, 2, 3):
            others.append(asking(worker, str(at)))
            await waiting(worker, at)
        for at in range(4):
            assert len(engine.asked) == at + 1, "one at a time"
            engine.let_go(at)
            if at < 3:
                await engine.has(at + 2)
        assert [(await it).status for it in (first, *others)] == [200] * 4
        assert engine.asked == ["0", "1", "2", "3"]
        records = [await worker.record(at) for at in range(4)]
        assert records[0].queue_s == 0
        assert all(it.queue_s is not None and it.queue_s > 0 for it in records[1:])
        assert worker.gate.flows() == {}


async def test_what_goes_on_from_a_stored_response_waits_its_turn_at_the_backend_that_has_it() -> None:
    async with stage(concurrency=1) as (engine, worker), ScriptedBackend() as second:
        views = [backend_view(engine.backend.url, "a"), backend_view(second.url, "b")]
        worker.serve(views, pools=[PoolView(name="main", concurrency=1)])
        worker.pipeline._owners.memory.note("resp_1", "a")
        first = aio.spawn(go_on(worker, "1"), name="first")
        await engine.has(1)
        later = aio.spawn(go_on(worker, "2"), name="later")
        await waiting(worker, 1)
        assert (worker.desk.in_flight, second.exchanges) == ({"a": 1}, []), "a place is free where it cannot go"
        second.add(Script((answer(ANSWER),)))
        assert (await ask(worker, "3")).status == 200, "nor does it keep one from whom it can serve"
        engine.let_go(0)
        await engine.has(2)
        engine.let_go(1)
        assert [(await it).status for it in (first, later)] == [200] * 2
        assert engine.asked == ["1", "2"]
        assert worker.gate.flows() == {}


async def test_who_waits_for_a_stored_response_is_told_at_once_when_its_backend_goes() -> None:
    async with stage(concurrency=1) as (engine, worker), ScriptedBackend() as second:
        views = [backend_view(engine.backend.url, "a"), backend_view(second.url, "b")]
        pools = [PoolView(name="main", concurrency=1, hold_s=30)]
        worker.serve(views, pools=pools)
        worker.pipeline._owners.memory.note("resp_1", "a")
        first = aio.spawn(go_on(worker, "1"), name="first")
        await engine.has(1)
        later = aio.spawn(go_on(worker, "2"), name="later")
        await waiting(worker, 1)
        worker.serve([backend_view(engine.backend.url, "a", state=BackendState.EJECTED), views[1]], pools=pools)
        seen = await later
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        engine.let_go(0)
        assert (await first).status == 200
        assert worker.gate.flows() == {}


async def go_on(worker: FakeWorker, user: str) -> Answer:
    async with raw_client(worker.port) as client:
        body = {"model": "tiny", "input": "x", "user": user, "previous_response_id": "resp_1"}
        await client.post(body, path="/v1/responses")
        return await client.answer(timeout_s=45)


async def test_a_request_that_engines_die_of_is_refused_before_it_waits() -> None:
    async with stage(concurrency=1) as (engine, worker):
        first = asking(worker, "1")
        await engine.has(1)
        deadly = fingerprint(parse_body(json.dumps({**ASK, "user": "2"}).encode(), Dialect.CHAT))
        worker.desk.apply(Quarantine(suspects=(), until={deadly: asyncio.get_running_loop().time() + 100}))
        refused = await ask(worker, "2")
        assert (refused.status, refused.error["code"]) == (422, "quarantined")
        assert int(refused.headers["retry-after"]) > 90
        engine.let_go(0)
        assert (await first).status == 200
        assert worker.gate.flows() == {}


async def test_two_backends_take_as_many_as_both_may() -> None:
    async with stage(concurrency=2) as (engine, worker), ScriptedBackend(answerer=engine._answer) as second:
        views = [backend_view(engine.backend.url, "a"), backend_view(second.url, "b")]
        worker.serve(views, pools=[PoolView(name="main", concurrency=2)])
        tasks = [asking(worker, str(at)) for at in range(5)]
        await waiting(worker, 1)
        assert worker.desk.in_flight == {"a": 2, "b": 2}
        for at in range(5):
            await worker.until(lambda at=at: len(engine.gates) > at)  # type: ignore[misc]
            engine.let_go(at)
        assert [(await it).status for it in tasks] == [200] * 5


async def test_a_client_that_leaves_while_it_waits_is_gone_at_once_and_nothing_is_left_of_it() -> None:
    async with stage(concurrency=1) as (engine, worker):
        first = asking(worker, "0")
        await engine.has(1)
        async with raw_client(worker.port) as leaver:
            await leaver.post({**ASK, "user": "leaver"})
            await waiting(worker, 1)
            stays = asking(worker, "stays")
            await waiting(worker, 2)
            leaver.reset()
            await waiting(worker, 1)
        record = await worker.record()
        assert (record.ending, record.outcome, record.backend) == (Ending.CLIENT_GONE, Outcome.CLIENT_GONE, "")
        engine.let_go(0)
        await engine.has(2)
        engine.let_go(1)
        assert [(await it).status for it in (first, stays)] == [200, 200]
        assert engine.asked == ["0", "stays"]
        assert (worker.desk.in_flight, worker.desk.holding, worker.gate.flows()) == ({}, 0, {})


async def test_a_thousand_wait_a_tenth_leaves_and_nothing_leaks() -> None:
    async with stage(concurrency=4, queue=2000) as (engine, worker):
        first = [asking(worker) for _ in range(4)]
        await engine.has(4)
        tasks = [asking(worker) for _ in range(1000)]
        await waiting(worker, 1000)
        for task in tasks[::10]:
            task.cancel()
        await waiting(worker, 900)
        for at in range(904):
            await engine.has(at + 1)
            engine.let_go(at)
        stayed = [task for at, task in enumerate(tasks) if at % 10]
        assert {(await it).status for it in (*first, *stayed)} == {200}
        assert len(engine.asked) == 904
        await worker.record(1003)
        assert (worker.desk.in_flight, worker.desk.holding, worker.gate.flows()) == ({}, 0, {})
        assert worker.desk.quiet.is_set()


async def test_a_full_queue_is_a_503_that_says_when_to_come_back() -> None:
    async with stage(concurrency=1, queue=1) as (engine, worker):
        first = asking(worker)
        await engine.has(1)
        second = asking(worker)
        await waiting(worker, 1)
        refused = await ask(worker)
        assert (refused.status, refused.error["code"]) == (503, "queue_full")
        assert 1 <= int(refused.headers["retry-after"]) <= 300
        assert worker.gate.refusals == {"main|queue_full": 1}
        engine.let_go(0)
        await engine.has(2)
        engine.let_go(1)
        assert [(await it).status for it in (first, second)] == [200, 200]


async def test_keys_of_weights_1_and_3_are_served_1_to_3_and_a_flood_delays_the_other_by_its_part_only() -> None:
    keys = (key("flood"), key("calm", weight=3.0))
    async with stage(keys=keys, concurrency=1) as (engine, worker):
        first = asking(worker, "first", key="pk-flood")
        await engine.has(1)
        tasks = []
        for at in range(40):
            tasks.append(asking(worker, "flood", key="pk-flood"))
            await waiting(worker, at + 1)
        for at in range(15):
            tasks.append(asking(worker, "calm", key="pk-calm"))
            await waiting(worker, 41 + at)
        for at in range(56):
            await engine.has(at + 1)
            engine.let_go(at)
        assert {(await it).status for it in (first, *tasks)} == {200}
        while_both = engine.asked[1:21]
        assert 14 <= while_both.count("calm") <= 16, while_both


async def test_a_full_queue_gives_the_place_of_a_flood_to_another_key() -> None:
    async with stage(keys=(key("flood"), key("calm")), concurrency=1, queue=4) as (engine, worker):
        tasks = [asking(worker, "flood", key="pk-flood")]
        await engine.has(1)
        for at in range(4):
            tasks.append(asking(worker, f"flood-{at}", key="pk-flood"))
            await waiting(worker, at + 1)
        calm = asking(worker, "calm", key="pk-calm")
        evicted = await tasks[4]
        assert (evicted.status, evicted.error["code"], evicted.error["param"]) == (429, "quota_exceeded", "queue_share")
        refused = await ask(worker, key="pk-flood")
        assert (refused.status, refused.error["code"]) == (429, "quota_exceeded")
        for at in range(5):
            await engine.has(at + 1)
            engine.let_go(at)
        assert (await calm).status == 200
        assert engine.asked.index("calm") <= 2
        assert [(await it).status for it in tasks[:4]] == [200] * 4


async def test_priorities_order_the_requests_of_one_key_and_are_bounded_by_it() -> None:
    async with stage(keys=(key("k", priority_min=-10),), concurrency=1) as (engine, worker):
        tasks = [asking(worker, "first", key="pk-k")]
        await engine.has(1)
        for at, priority in enumerate(("5", "0", "-10")):
            tasks.append(asking(worker, priority, key="pk-k", X_Gateway_Priority=priority))
            await waiting(worker, at + 1)
        for given, status in (("-11", 403), ("x", 400), ("1000", 400), ("1.5", 400)):
            assert (await ask(worker, key="pk-k", X_Gateway_Priority=given)).status == status, given
        for at in range(4):
            await engine.has(at + 1)
            engine.let_go(at)
        assert {(await it).status for it in tasks} == {200}
        assert engine.asked == ["first", "-10", "0", "5"]


async def test_a_request_that_waits_with_a_key_that_is_revoked_has_to_go() -> None:
    async with stage(keys=(key("k"), key("other")), concurrency=1) as (engine, worker):
        first = asking(worker, key="pk-other")
        await engine.has(1)
        late = asking(worker, key="pk-k")
        await waiting(worker, 1)
        worker.know(key("k", revoked_wall=1.0), key("other"))
        assert (await late).status == 401
        engine.let_go(0)
        assert (await first).status == 200


async def test_at_the_deadline_of_a_stop_those_who_wait_are_told() -> None:
    async with stage(concurrency=1) as (engine, worker):
        first = asking(worker)
        await engine.has(1)
        second = asking(worker)
        await waiting(worker, 1)
        worker.desk.stopping = True
        worker.pipeline.end_all()
        seen = await second
        assert (seen.status, seen.error["code"]) == (503, "shutting_down")
        assert (await first).status == 503


async def test_with_siblings_places_come_with_shares_and_control_is_hurried() -> None:
    async with stage(lone=False, concurrency=2) as (engine, worker):
        none = await ask(worker)
        assert (none.status, none.error["code"]) == (503, "queue_full"), "it was told nothing yet"
        worker.desk.apply(Shares(in_flight_limit=9, others_in_flight={}, limits={"queue:main": 5}))
        task = asking(worker)
        await waiting(worker, 1)
        assert worker.hurries == 1
        assert worker.gate.claims()["queue:main"].holding == 1
        worker.desk.apply(Shares(in_flight_limit=9, others_in_flight={}, limits={"backend:a": 1}))
        await engine.has(1)
        assert worker.gate.claims()["backend:a"].holding == 1
        engine.let_go(0)
        assert (await task).status == 200
        assert worker.hurries == 1


async def test_rules_that_go_let_everybody_through() -> None:
    async with stage(concurrency=1) as (engine, worker):
        tasks = [asking(worker, str(at)) for at in range(4)]
        await waiting(worker, 3)
        worker.serve([backend_view(engine.backend.url)])
        await engine.has(4)
        for at in range(4):
            engine.let_go(at)
        assert {(await it).status for it in tasks} == {200}
        assert worker.gate.flows() == {}


async def test_a_pool_that_goes_down_tells_those_who_wait_at_once() -> None:
    async with stage(concurrency=1) as (engine, worker):
        first = asking(worker)
        await engine.has(1)
        second = asking(worker)
        await waiting(worker, 1)
        view = backend_view(engine.backend.url, state=BackendState.EJECTED)
        worker.serve([view], pools=[PoolView(name="main", concurrency=1)])
        seen = await second
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        engine.let_go(0)
        assert (await first).status == 200


# --- in fake time -------------------------------------------------------------------------------------------------


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.looptime
@pytest.mark.parametrize(
    "rules, headers, code, status, after_s",
    [
        ({"queue_s": 7.0}, {}, "queue_timeout", 503, 7),
        ({"deadline_s": 3.0}, {}, "deadline_exceeded", 504, 3),
        ({"deadline_s": 3.0}, {"X_Gateway_Deadline": "5"}, "deadline_exceeded", 504, 5),
        ({"queue_s": 4.0}, {"X_Gateway_Deadline": "50"}, "queue_timeout", 503, 4),
    ],
    ids=["longest wait", "pool's deadline", "its own deadline", "the shorter one"],
)
async def test_nobody_waits_beyond_its_time(
    rules: dict[str, float], headers: dict[str, str], code: str, status: int, after_s: int
) -> None:
    async with stage(concurrency=1, **rules) as (engine, worker):
        first = asking(worker)
        await engine.has(1)
        began = now()
        seen = await ask(worker, **headers)
        assert (seen.status, seen.error["code"], round(now() - began)) == (status, code, after_s)
        assert int(seen.headers["retry-after"]) >= 1
        assert len(engine.asked) == 1
        engine.let_go(0)
        assert (await first).status == 200


@pytest.mark.looptime
@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "soon", "1e9"])
async def test_a_deadline_is_a_number_of_seconds(given: str) -> None:
    async with stage(concurrency=1) as (_, worker):
        seen = await ask(worker, X_Gateway_Deadline=given)
        assert (seen.status, seen.error["param"]) == (400, "X-Gateway-Deadline")


@pytest.mark.looptime
@pytest.mark.parametrize("state", [BackendState.EJECTED, BackendState.DRAINING, BackendState.LOADING])
async def test_requests_are_held_while_a_backend_is_expected_back(state: BackendState) -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        pools = [PoolView(name="main", hold_s=10.0)]
        worker.serve([backend_view(engine.backend.url, state=state)], pools=pools)
        began = now()
        held = asking(worker)
        await waiting(worker, 1)
        await asyncio.sleep(6)
        worker.serve([backend_view(engine.backend.url)], pools=pools)
        await engine.has(1)
        engine.let_go(0)
        assert (await held).status == 200
        assert 6 <= now() - began < 7


@pytest.mark.looptime
async def test_a_backend_that_does_not_come_back_is_waited_for_so_long_and_no_longer() -> None:
    async with stage(hold_s=10.0) as (engine, worker):
        down = [backend_view(engine.backend.url, state=BackendState.EJECTED)]
        worker.serve(down, pools=[PoolView(name="main", hold_s=10.0)])
        began = now()
        seen = await ask(worker)
        assert (seen.status, seen.error["code"], round(now() - began)) == (503, "nothing_serving", 10)
        began = now()
        assert (await ask(worker)).status == 503
        assert now() - began < 0.1, "it has been away for longer than anybody waits"


@pytest.mark.looptime
async def test_a_backend_that_refuses_connections_is_tried_again_until_it_is_back() -> None:
    """As in a restart, before control has noticed."""
    async with stage(hold_s=10.0) as (engine, worker):
        await engine.backend.stop()
        held = asking(worker)
        await waiting(worker, 1)
        await asyncio.sleep(3)
        await engine.backend.start()
        await engine.has(1)
        engine.let_go(0)
        assert (await held).status == 200
        record = await worker.record()
        assert record.attempts >= 2
        assert record.queue_s is not None
        assert record.queue_s >= 2.5


@pytest.mark.looptime
async def test_without_hold_nobody_waits_for_a_backend_that_is_away() -> None:
    async with stage(concurrency=1, state=BackendState.EJECTED) as (_, worker):
        began = now()
        seen = await ask(worker)
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        assert now() - began < 0.1


async def test_nor_by_a_clock_that_goes_on_while_it_is_looked_at() -> None:
    desk = Desk(slot=0, clock=time.monotonic, acknowledge=lambda _: None)
    gate = Gate(desk=desk, clock=time.monotonic)
    view = backend_view("http://127.0.0.1:1", state=BackendState.EJECTED)
    snapshot = Snapshot(generation=1, pools=(PoolView(name="main", concurrency=1),), backends=(view,))
    desk.apply(NewSnapshot(snapshot=snapshot))
    visit = Visit(accepted=time.monotonic(), accepted_wall=0.0, snapshot=snapshot, request_id="x")
    visit.pool = "main"
    with pytest.raises(NothingServing):
        gate.try_lease(visit)
