"""Routing in the request flow: busy backends, sessions, measured rates, and requests that engines die of."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.core.link.messages import Pace, Quarantine
from gateway.core.request.body import parse_body
from gateway.core.request.fingerprint import fingerprint
from gateway.core.routing.curve import CurvePoint
from gateway.core.routing.policy import PoisonPolicy, Policy, RoutingPolicy
from gateway.core.routing.snapshot import PoolView, WorkerPolicy
from gateway.core.stream.summary import Dialect, Outcome
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_relay_endings import DONE, HEAD, HELLO, REQUEST, ROLE, STOP, chunk

pytestmark = pytest.mark.asyncio

OK = Script((answer(b'{"choices":[{"index":0,"finish_reason":"stop","message":{}}]}'),))
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
BUSY = b'{"error":{"message":"The engine is currently busy"}}'
PRINT = fingerprint(parse_body(json.dumps(ASK).encode(), Dialect.CHAT))


def busy(status: int = 503, *, retry_after: str = "") -> Script:
    headers = f"Retry-After: {retry_after}\r\n" if retry_after else ""
    return Script((answer(BUSY, status=status, headers=headers),))


def serve(worker: FakeWorker, *backends: ScriptedBackend, policy: Policy = Policy.LEAST_IN_FLIGHT) -> None:
    """Backends a, b and so on of one pool with that policy."""
    views = [backend_view(backend.url, name) for name, backend in zip("abc", backends, strict=False)]
    worker.serve(views, pools=(PoolView(name="main", routing=RoutingPolicy(policy=policy)),))


async def asked(worker: FakeWorker, body: dict[str, object] | None = None, **headers: str) -> Answer:
    async with raw_client(worker.port) as client:
        await client.post(body or ASK, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return await client.answer()


# --- backpressure ---


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_backend_is_passed_over_while_another_is_free_and_never_held_against_it(status: int) -> None:
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        serve(worker, a, b)
        a.add(busy(status, retry_after="30"), busy(status, retry_after="30"))
        b.add(*[OK] * 7)
        names = [(await asked(worker)).headers["x-gateway-backend"] for _ in range(6)]
        assert names == ["b"] * 6
        assert len(a.exchanges) == 1, "it said for how long"
        assert {it.outcome for it in worker.records} == {Outcome.OK}
        assert {it.code for it in worker.failures} <= {"status_503"}, "which does not speak against it"


@pytest.mark.parametrize("status", [429, 503])
async def test_when_all_are_busy_the_client_gets_that_answer_with_a_time_to_come_back(status: int) -> None:
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        serve(worker, a, b)
        a.add(busy(status, retry_after="20"))
        b.add(busy(status, retry_after="7"))
        seen = await asked(worker)
        assert (seen.status, seen.body) == (status, BUSY), "the engine's own words"
        assert seen.headers["retry-after"] == "7", "when the first of them may be free"
        assert "x-gateway-error" not in seen.headers


async def test_a_backend_that_names_no_time_is_asked_again_and_the_client_told_a_second() -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        serve(worker, a)
        a.add(busy(), OK)
        seen = await asked(worker)
        assert (seen.status, seen.headers["retry-after"]) == (503, "1")
        assert (await asked(worker)).status == 200, "there is no other, so its mark is no reason to refuse"


async def test_an_error_that_is_no_backpressure_keeps_its_headers() -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        serve(worker, a)
        a.add(Script((answer(BUSY, status=500, headers="Retry-After: 9\r\n"),)))
        assert (await asked(worker)).headers["retry-after"] == "9"


# --- sessions and rates ---


async def test_requests_of_one_session_go_to_one_backend_by_header_or_by_how_the_prompt_begins() -> None:
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        serve(worker, a, b, policy=Policy.SESSION)
        for backend in (a, b):
            backend.add(*[OK] * 60)
        homes: dict[str, str] = {}
        for name in "0123456789":
            went = {(await asked(worker, x_session_id=name)).headers["x-gateway-backend"] for _ in range(3)}
            assert len(went) == 1
            homes[name] = went.pop()
        assert set(homes.values()) == {"a", "b"}
        long = {"role": "user", "content": "x" * 2000}
        turns = [{**ASK, "messages": [long, {"role": "user", "content": str(at)}]} for at in range(4)]
        went = {(await asked(worker, turn)).headers["x-gateway-backend"] for turn in turns}
        assert len(went) == 1
        bare = [(await asked(worker, {"model": "tiny"})).headers["x-gateway-backend"] for _ in range(4)]
        assert sorted(bare) == ["a", "a", "b", "b"], "no session: as ever"


async def test_a_session_goes_on_to_another_backend_when_its_own_is_busy_or_gone() -> None:
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        serve(worker, a, b, policy=Policy.SESSION)
        for backend in (a, b):
            backend.add(*[OK] * 20)
        own = (await asked(worker, x_session_id="s")).headers["x-gateway-backend"]
        await (a if own == "a" else b).stop()
        for backend in (a, b):
            backend.drop_connections()
        other = (await asked(worker, x_session_id="s")).headers["x-gateway-backend"]
        assert {own, other} == {"a", "b"}


async def test_by_measured_rate_the_faster_backend_is_filled_first() -> None:
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        serve(worker, a, b, policy=Policy.MEASURED_RATE)
        for name, tps in (("a", 100.0), ("b", 30.0)):
            curve = tuple(CurvePoint(streams=streams, tps=tps / streams) for streams in (1, 2, 3, 4))
            worker.desk.apply(Pace(backend=name, curve=curve))
        for backend in (a, b):
            backend.add(*[Script((), End.HANG)] * 8)
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number in range(4):
                tasks.append(group.create_task(asked(worker)))
                while len(a.exchanges) + len(b.exchanges) <= number:  # noqa: ASYNC110  (turns of the loop)
                    await asyncio.sleep(0)
            assert worker.desk.in_flight == {"a": 3, "b": 1}
            for task in tasks:
                task.cancel()


# --- requests that engines die of ---


async def test_a_quarantined_request_is_refused_and_reaches_nobody_and_others_are_served() -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        serve(worker, a)
        a.add(OK, OK)
        until = worker.desk._clock() + 100.0
        worker.desk.apply(Quarantine(suspects=(), until={PRINT: until}))
        for body in (ASK, {**ASK, "stream": True}):
            seen = await asked(worker, body)
            assert (seen.status, seen.error["code"], seen.headers["x-gateway-error"]) == (422, "quarantined", "1")
            assert 99 <= int(seen.headers["retry-after"]) <= 100
        record = await worker.record()
        assert (record.outcome, record.backend, record.error_code) == (Outcome.REJECTED, "", "quarantined")
        assert (await asked(worker, {**ASK, "max_tokens": 1})).status == 200
        worker.desk.apply(Quarantine(suspects=(), until={}))
        assert (await asked(worker)).status == 200
        assert len(a.exchanges) == 2
        assert worker.desk.in_flight == {}


@pytest.mark.parametrize("end", [End.CLOSE, End.RESET])
@pytest.mark.parametrize("pieces, stream", [((), False), ((HEAD,), True), ((HEAD, chunk(ROLE), chunk(HELLO)), True)])
async def test_a_lost_connection_is_reported_with_the_request_s_fingerprint(
    end: End, pieces: tuple[bytes, ...], *, stream: bool
) -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        serve(worker, a)
        a.add(Script(pieces, end))
        await asked(worker, {**ASK, "stream": stream})
        await worker.record()
        assert [(it.code, it.fingerprint) for it in worker.failures] == [("backend_died", PRINT)]


async def test_of_a_long_body_that_was_let_go_the_fingerprint_is_known_all_the_same() -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        serve(worker, a)
        a.add(Script((HEAD, chunk(ROLE)), End.CLOSE), Script((), End.CLOSE))
        long = {**REQUEST, "messages": [{"role": "user", "content": "x" * 20_000}]}
        await asked(worker, long)
        await asked(worker, {**long, "stream": False})
        await worker.record(1)
        first, second = (it.fingerprint for it in worker.failures)
        assert first == second != ""


async def test_with_the_quarantine_off_nothing_is_hashed() -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        worker.serve([backend_view(a.url)], policy=WorkerPolicy(poison=PoisonPolicy(deaths=0)))
        a.add(Script((HEAD, chunk(ROLE)), End.CLOSE))
        await asked(worker, REQUEST)
        await worker.record()
        assert [(it.code, it.fingerprint) for it in worker.failures] == [("backend_died", "")]


DEAD = b'{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.",%b}}'
DEAD_EVENT = b"data: " + DEAD % b'"type":"InternalServerError","param":null,"code":500' + b"\n\n"


@pytest.mark.parametrize(
    "script, stream, codes",
    [
        (Script((answer(DEAD % b'"code":500', status=500),)), False, ["status_500", "engine_dead"]),
        (Script((HEAD, chunk(ROLE), chunk(DEAD_EVENT + DONE), b"0\r\n\r\n")), True, ["engine_dead"]),
    ],
    ids=["whole", "stream"],
)
async def test_an_engine_that_says_that_it_is_dead_is_reported_with_who_was_there(
    script: Script, codes: list[str], *, stream: bool
) -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        serve(worker, a)
        a.add(script)
        await asked(worker, {**ASK, "stream": stream})
        await worker.record()
        assert [it.code for it in worker.failures] == codes
        assert worker.failures[-1].fingerprint == PRINT


async def test_a_suspect_that_ends_well_is_told_and_others_are_not() -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        serve(worker, a)
        whole = Script((HEAD + chunk(ROLE + HELLO + STOP + DONE) + b"0\r\n\r\n",))
        a.add(whole, whole)
        worker.desk.apply(Quarantine(suspects=(PRINT,), until={}))
        await asked(worker, {**ASK, "stream": True})
        await asked(worker, {**ASK, "stream": True, "max_tokens": 3})
        await worker.record(1)
        assert [(it.code, it.fingerprint) for it in worker.failures] == [("", PRINT)]
