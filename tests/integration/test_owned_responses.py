"""Stored responses: who made one answers for it, and no other backend; others are asked only who has it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway.core.routing.backend import BackendState
from gateway.core.routing.parameters import ParameterPolicy
from gateway.core.routing.snapshot import BackendView, LimitPolicy, PoolView, TimerPolicy, WorkerPolicy
from gateway.core.stream.summary import Flag, Outcome
from tests.fakes.backend import End, Request, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.engine_events import typed
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_relay_endings import HEAD, chunk

pytestmark = pytest.mark.asyncio

UNKNOWN = answer(b'{"error":{"message":"not found","type":"invalid_request_error","code":404}}', status=404)
POLICY = WorkerPolicy(parameters=ParameterPolicy(background=True), timers=TimerPolicy(owner_s=0.3))


def response(thing: str, status: str = "completed") -> bytes:
    return json.dumps(
        {"id": thing, "object": "response", "status": status, "usage": {"input_tokens": 3, "output_tokens": 5}}
    ).encode()


def stream(thing: str, *, cut: bool = False) -> Script:
    started = typed("response.created", response={"id": thing, "status": "in_progress"})
    text = typed("response.output_text.delta", delta="hello")
    ended = typed(
        "response.completed",
        response={"id": thing, "status": "completed", "usage": {"input_tokens": 3, "output_tokens": 5}},
    )
    if cut:
        return Script((HEAD, chunk(started), chunk(text)), End.HANG)
    return Script((HEAD, chunk(started), chunk(text), chunk(ended) + b"0\r\n\r\n"))


def holding(*things: str) -> Callable[[Request], Script]:
    """A backend that has these responses, and makes another at each POST."""

    def play(request: Request) -> Script:
        if request.method == "POST" and request.target == "/v1/responses":
            return Script((answer(response(things[0] if things else "resp_new")),))
        named = request.target.partition("?")[0].removeprefix("/v1/responses/").partition("/")[0]
        return Script((answer(response(named)) if named in things else UNKNOWN,))

    return play


@asynccontextmanager
async def fleet(
    **backends: Callable[[Request], Script],
) -> AsyncIterator[tuple[FakeWorker, dict[str, ScriptedBackend], Callable[..., None]]]:
    """Backends by name, a worker in front of them, and what makes it serve them (states by name)."""
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(running_worker())
        started = {
            name: await stack.enter_async_context(ScriptedBackend(answerer=answerer))
            for name, answerer in backends.items()
        }

        def serve(states: Mapping[str, BackendState] | None = None, policy: WorkerPolicy = POLICY) -> None:
            views = [
                backend_view(backend.url, name, state=(states or {}).get(name, BackendState.SERVING))
                for name, backend in started.items()
            ]
            worker.serve(views, policy=policy)

        serve()
        yield worker, started, serve


async def asked(worker: FakeWorker, path: str, *, method: str = "GET", **fields: Any) -> Answer:
    async with raw_client(worker.port) as client:
        if method == "GET":
            await client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        else:
            await client.post(fields or b"", path=path)
        return await client.answer()


def targets(backend: ScriptedBackend) -> list[str]:
    return [f"{exchange.request.method} {exchange.request.target}" for exchange in backend.exchanges]


GET = "GET /v1/responses/resp_1"


@pytest.mark.parametrize("kind", ["whole", "stream"])
async def test_a_response_is_asked_for_where_it_was_made(kind: str) -> None:
    async with fleet(a=holding(), b=holding()) as (worker, backends, _):
        made = {}
        for number in range(6):  # a choice each, so both make some
            thing = f"resp_{number}"
            script = stream(thing) if kind == "stream" else Script((answer(response(thing)),))
            for backend in backends.values():
                backend.add(script)
            seen = await asked(worker, "/v1/responses", method="POST", model="tiny", stream=kind == "stream")
            made[thing] = seen.headers["x-gateway-backend"]
            other = backends["b" if made[thing] == "a" else "a"]
            assert other.queued_script() is script
        assert set(made.values()) == {"a", "b"}
        for thing, name in made.items():
            backends[name].add(Script((answer(response(thing)),)))
            seen = await asked(worker, f"/v1/responses/{thing}")
            assert (seen.status, json.loads(seen.body)["id"]) == (200, thing)
            assert seen.headers["x-gateway-backend"] == name
        assert all(backend.unscripted == [] for backend in backends.values()), "nobody else was asked"


async def test_cancel_and_query_go_to_the_owner_and_nothing_else_of_the_client_does() -> None:
    async with fleet(a=holding("resp_1"), b=holding()) as (worker, backends, _):
        await asked(worker, "/v1/responses/resp_1?starting_after=3&x=/metrics")
        seen = await asked(worker, "/v1/responses/resp_1/cancel", method="POST")
        assert seen.status == 200
        assert targets(backends["a"]) == [GET, GET + "?starting_after=3", "POST /v1/responses/resp_1/cancel"]
        assert targets(backends["b"]) == [GET]
        cancel = backends["a"].exchanges[-1].request
        assert (cancel.headers.get("content-length"), cancel.body, "content-type" in cancel.headers) == (
            "0",
            b"",
            False,
        )
        assert [(r.endpoint, r.outcome, r.backend) for r in worker.records] == [
            ("response", Outcome.OK, "a"),
            ("response_cancel", Outcome.OK, "a"),
        ]


async def test_where_the_owner_is_not_known_all_are_asked_and_the_one_that_knows_is_remembered() -> None:
    async with fleet(a=holding(), b=holding(), c=holding("resp_1"), d=holding()) as (worker, backends, _):
        for _ in range(3):
            seen = await asked(worker, "/v1/responses/resp_1")
            assert (seen.status, seen.headers["x-gateway-backend"]) == (200, "c")
        assert targets(backends["c"]) == [GET] * 4, "one question, three answers"
        assert all(len(targets(backends[name])) <= 1 for name in "abd")
        assert worker.desk.in_flight == {}


async def test_a_response_that_nobody_knows_is_a_404_of_our_own() -> None:
    async with fleet(a=holding(), b=holding()) as (worker, backends, _):
        for path, method in (("/v1/responses/resp_1", "GET"), ("/v1/responses/resp_1/cancel", "POST")):
            seen = await asked(worker, path, method=method)
            assert (seen.status, seen.error["code"], seen.headers["x-gateway-error"]) == (404, "not_found", "1")
        assert targets(backends["a"]) == targets(backends["b"]) == [GET] * 2, "a cancel is never sent around"
        assert {record.outcome for record in worker.records} == {Outcome.REJECTED}


def _silent(_: Request) -> Script:
    return Script((), End.HANG)


def _closing(_: Request) -> Script:
    return Script((), End.CLOSE)


def _garbled(_: Request) -> Script:
    return Script((b"no http\r\n\r\n",))


def _broken(_: Request) -> Script:
    return Script((answer(b"{}", status=500),))


@pytest.mark.parametrize("other", [_silent, _closing, _garbled, _broken])
async def test_while_one_cannot_be_asked_it_may_be_the_owner(other: Callable[[Request], Script]) -> None:
    async with fleet(a=holding(), b=other) as (worker, _, _serve):
        seen = await asked(worker, "/v1/responses/resp_1")
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        assert int(seen.headers["retry-after"]) >= 1
    async with fleet(a=holding("resp_1"), b=other) as (worker, _, _serve):
        assert (await asked(worker, "/v1/responses/resp_1")).status == 200, "one that knows is enough"


async def test_a_backend_that_refuses_connections_cannot_be_asked_either() -> None:
    async with fleet(a=holding()) as (worker, backends, _):
        gone = BackendView(name="b", pool="main", url="http://127.0.0.1:9", state=BackendState.SERVING)
        worker.serve([backend_view(backends["a"].url), gone], policy=POLICY)
        assert (await asked(worker, "/v1/responses/resp_1")).status == 503


@pytest.mark.parametrize("state", [BackendState.DRAINING, BackendState.EJECTED])
async def test_an_owner_that_does_not_serve_is_waited_for_and_no_other_is_asked(state: BackendState) -> None:
    async with fleet(a=holding("resp_1"), b=holding()) as (worker, backends, serve):
        assert (await asked(worker, "/v1/responses/resp_1")).status == 200
        before = targets(backends["b"])
        serve({"a": state})
        seen = await asked(worker, "/v1/responses/resp_1")
        assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
        assert targets(backends["b"]) == before
        serve()
        assert (await asked(worker, "/v1/responses/resp_1")).status == 200


async def test_without_any_backend_that_serves_it_is_a_503() -> None:
    async with fleet(a=holding("resp_1")) as (worker, _, serve):
        serve({"a": BackendState.EJECTED})
        assert (await asked(worker, "/v1/responses/resp_1")).status == 503


async def test_backends_of_every_pool_are_asked_and_the_record_says_which_it_was() -> None:
    async with fleet(a=holding(), b=holding("resp_1")) as (worker, backends, _):
        views = [backend_view(backends["a"].url, "a"), backend_view(backends["b"].url, "b", pool="second")]
        worker.serve(views, pools=(PoolView(name="main"), PoolView(name="second")), policy=POLICY)
        seen = await asked(worker, "/v1/responses/resp_1")
        assert seen.status == 200
        record = await worker.record()
        assert (record.pool, record.backend, record.model) == ("second", "b", "")


# --- going on from a response -------------------------------------------------------------------------------------


async def test_what_goes_on_from_a_response_goes_to_its_owner() -> None:
    async with fleet(a=holding("resp_a"), b=holding("resp_b"), c=holding("resp_c")) as (worker, backends, _):
        for _ in range(4):
            for name in "abc":
                before = f"resp_{name}"
                seen = await asked(
                    worker, "/v1/responses", method="POST", model="tiny", previous_response_id=before, input="x"
                )
                assert (seen.status, seen.headers["x-gateway-backend"]) == (200, name)
        posts = [it for backend in backends.values() for it in targets(backend) if it.startswith("POST")]
        assert len(posts) == 12


@pytest.mark.parametrize("before", ["resp_nobody", "chatcmpl-1", "../metrics", "", None, 7, ["resp_1"]])
async def test_what_goes_on_from_something_unknown_is_the_engine_s_to_refuse(before: object) -> None:
    async with fleet(a=holding(), b=holding()) as (worker, backends, _):
        seen = await asked(worker, "/v1/responses", method="POST", model="tiny", previous_response_id=before)
        assert seen.status == 200
        posts = [it for backend in backends.values() for it in targets(backend) if it.startswith("POST")]
        assert len(posts) == 1


async def test_a_request_that_is_bound_to_its_owner_is_never_tried_elsewhere() -> None:
    async with fleet(a=holding("resp_1"), b=holding()) as (worker, backends, _):
        await asked(worker, "/v1/responses/resp_1")
        backends["a"].add(Script((answer(b"{}", status=503),)))
        seen = await asked(worker, "/v1/responses", method="POST", model="tiny", previous_response_id="resp_1")
        assert seen.status == 503
        assert "POST /v1/responses" not in targets(backends["b"])


# --- what is remembered, and what is measured ---------------------------------------------------------------------


async def test_what_the_client_does_not_want_stored_is_not_remembered() -> None:
    async with fleet(a=holding("resp_1"), b=holding("resp_1")) as (worker, backends, _):
        await asked(worker, "/v1/responses", method="POST", model="tiny", store=False)
        await asked(worker, "/v1/responses/resp_1")
        assert sum(it == GET for backend in backends.values() for it in targets(backend)) >= 2


async def test_no_more_are_remembered_than_allowed() -> None:
    policy = WorkerPolicy(limits=LimitPolicy(owned_responses=2))
    async with fleet(a=holding()) as (worker, backends, serve):
        serve(policy=policy)
        for number in range(4):
            backends["a"].add(Script((answer(response(f"resp_{number}")),)))
            await asked(worker, "/v1/responses", method="POST", model="tiny")
        memory = worker.pipeline._owners.memory
        assert [memory.owner(f"resp_{number}") for number in range(4)] == ["", "", "a", "a"]


async def test_an_id_that_could_not_be_asked_for_is_not_remembered() -> None:
    async with fleet(a=holding()) as (worker, backends, _):
        for body in (b'{"id":"../x"}', b'{"id":7}', b"[]", b"{}", b'{"id":"' + b"x" * 500 + b'"}'):
            backends["a"].add(Script((answer(body),)))
            await asked(worker, "/v1/responses", method="POST", model="tiny")
        assert len(worker.pipeline._owners.memory) == 0


async def test_a_stream_s_owner_is_known_while_it_is_open() -> None:
    async with fleet(a=holding("resp_1"), b=holding()) as (worker, backends, serve):
        serve({"b": BackendState.EJECTED})
        backends["a"].add(stream("resp_1", cut=True))
        async with raw_client(worker.port) as client:
            await client.post({"model": "tiny", "stream": True}, path="/v1/responses")
            await client.until(b"hello")
            serve()
            assert (await asked(worker, "/v1/responses/resp_1/cancel", method="POST")).status == 200
        assert targets(backends["b"]) == []


async def test_a_stored_answer_is_relayed_as_a_stream_and_counted_for_nothing() -> None:
    async with fleet(a=holding("resp_1")) as (worker, backends, _):
        await asked(worker, "/v1/responses/resp_1")
        backends["a"].add(stream("resp_1"))
        seen = await asked(worker, "/v1/responses/resp_1?stream=true")
        assert seen.headers["content-type"].startswith("text/event-stream")
        assert seen.whole
        first, second = worker.records
        assert first.summary is not None
        assert second.summary is not None
        assert (first.summary.prompt_tokens, first.summary.flags) == (None, (Flag.REPLAYED,))
        assert (second.outcome, second.stream) == (Outcome.OK, True)
        summary = second.summary
        assert (summary.completion_tokens, summary.decode_tps, summary.flags) == (None, None, (Flag.REPLAYED,))


async def test_a_background_response_is_asked_of_its_backend_only_where_that_is_allowed() -> None:
    async with fleet(a=holding("resp_1")) as (worker, backends, serve):
        backends["a"].add(Script((answer(response("resp_1", "queued")),)))
        seen = await asked(worker, "/v1/responses", method="POST", model="tiny", background=True)
        assert (seen.status, (await worker.record()).outcome) == (200, Outcome.OK)
        serve(policy=WorkerPolicy())
        seen = await asked(worker, "/v1/responses", method="POST", model="tiny", background=True)
        assert (seen.status, seen.error["param"]) == (400, "background")


async def test_a_body_where_none_says_anything_is_read_and_dropped_or_refused() -> None:
    async with fleet(a=holding("resp_1")) as (worker, backends, _):
        async with raw_client(worker.port) as client:
            for _ in range(2):
                await client.post({"any": "thing"}, path="/v1/responses/resp_1/cancel")
                assert (await client.answer()).status == 200
        assert all(exchange.request.body == b"" for exchange in backends["a"].exchanges)
        assert (await asked(worker, "/v1/responses/resp_1/cancel", method="POST", x="y" * 5000)).status == 413


async def test_a_client_that_leaves_while_backends_are_asked_leaves_nothing_behind() -> None:
    async with fleet(a=_silent, b=_silent) as (worker, backends, serve):
        serve(policy=WorkerPolicy(timers=TimerPolicy(owner_s=60)))
        async with raw_client(worker.port) as client:
            await client.send(b"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: g\r\n\r\n")
            asked_of = [await backend.exchange(0) for backend in backends.values()]
            client.close()
            for exchange in asked_of:
                await exchange.client_closed.wait()
        assert (await worker.record()).outcome is Outcome.CLIENT_GONE
        assert worker.desk.holding == 0
