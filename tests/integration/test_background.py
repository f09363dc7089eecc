"""Responses that are made in the background: charged once, when they have ended, whoever asks for them and where."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.control.keysfile import replace_file
from gateway.core.admission.keys import KeyLimits
from gateway.core.link.messages import Quarantine, RequestRecord, Shares
from gateway.core.request.body import MOST_TOKENS, parse_body
from gateway.core.request.fingerprint import fingerprint
from gateway.core.stream.summary import Dialect, Exactness, Outcome
from gateway.proxy import background
from gateway.settings.keys import write_keys
from tests.fakes.client import raw_client
from tests.fakes.gateway_process import connection, gateway, get
from tests.fakes.storing_engine import StoringEngine
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_key_responses import BOB, POLICY, cancel, crew, key, make, post, talk
from tests.integration.test_key_responses import get as retrieve

pytestmark = pytest.mark.asyncio

RESPONSES = Dialect.RESPONSES
DAILY = KeyLimits(tokens_per_day=1000, tokens_per_minute=900)


def used(worker: FakeWorker, key_id: str = "alice") -> int:
    """Tokens of today that a worker says its key has used, what is set aside among them."""
    claim = worker.gate.claims().get(f"day:{key_id}")
    return 0 if claim is None else claim.holding


async def ended(worker: FakeWorker, count: int = 1) -> RequestRecord:
    """The latest record of a response, when there are so many of those that an engine took."""

    def found() -> list[RequestRecord]:
        return [it for it in worker.records if it.endpoint == "responses" and it.backend]

    await worker.until(lambda: len(found()) == count)
    return found()[-1]


async def test_its_tokens_are_charged_once_when_it_has_ended_by_the_worker_that_sent_it() -> None:
    async with crew(key("alice", limits=DAILY), BOB) as (workers, engines):
        thing = await make(workers[0], background=True, max_output_tokens=100)
        assert (used(workers[0]), used(workers[1])) == (100, 0), "set aside until then"
        assert workers[0].records == []
        (engine,) = [it for it in engines if thing in it.kept]
        for worker in workers:
            assert json.loads((await retrieve(worker, "alice", thing)).body)["status"] == "queued"
        engine.finish(thing, tokens=40)
        record = await ended(workers[0])
        assert record.summary is not None
        assert (record.summary.prompt_tokens, record.summary.completion_tokens) == (3, 40)
        assert (record.outcome, record.key_id, record.summary.total_exactness) == (
            Outcome.OK,
            "alice",
            Exactness.EXACT,
        )
        for _ in range(3):
            for worker in workers:
                assert (await retrieve(worker, "alice", thing)).status == 200
        assert (used(workers[0]), used(workers[1])) == (43, 0)
        assert sum(it.endpoint == "responses" for worker in workers for it in worker.records) == 1


async def test_nobody_has_to_ask_for_it() -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        thing = await make(worker, background=True, max_output_tokens=100)
        engine.finish(thing, tokens=7)
        await ended(worker)
        assert used(worker) == 10


async def test_until_it_has_ended_it_is_a_request_of_its_key() -> None:
    limits = KeyLimits(concurrency=1)
    async with crew(key("alice", limits=limits), engines=1, workers=1) as ((worker,), (engine,)):
        thing = await make(worker, background=True)
        refused = await post(worker)
        assert (refused.status, refused.error["param"]) == (429, "concurrency")
        engine.finish(thing)
        await ended(worker)
        assert (await post(worker)).status == 200


@pytest.mark.parametrize("limits", [KeyLimits(concurrency=1), DAILY])
@pytest.mark.parametrize("lone", [True, False])
async def test_who_has_used_a_limit_up_for_it_can_still_ask_after_it_and_cancel_it(
    limits: KeyLimits, lone: bool
) -> None:
    """At the worker that has all of the limit, and at one that has no share of it."""
    async with crew(key("alice", limits=limits), engines=1, lone=lone) as ((worker, other), (engine,)):
        shares = {f"{it}:alice": 1000 for it in ("concurrency", "tokens", "day")}
        worker.desk.apply(Shares(in_flight_limit=9, others_in_flight={}, limits=shares))
        thing = await make(worker, background=True, max_output_tokens=1000)
        assert (await post(worker)).status == 429
        for asked in (worker, other):
            assert (await retrieve(asked, "alice", thing)).status == 200
        assert (await cancel(other, "alice", thing)).status == 200
        await ended(worker)
        assert engine.kept[thing]["status"] == "cancelled"
        for it in (worker, other):
            await it.until(lambda it=it: it.gate._quotas._meter("alice").inside == 0)  # type: ignore[misc]


async def test_asking_after_it_counts_as_a_request_of_the_minute() -> None:
    limits = KeyLimits(requests_per_minute=2)
    async with crew(key("alice", limits=limits), engines=1, workers=1) as ((worker,), _):
        thing = await make(worker)
        assert (await retrieve(worker, "alice", thing)).status == 200
        refused = await retrieve(worker, "alice", thing)
        assert (refused.status, refused.error["param"]) == (429, "requests_per_minute")


async def test_a_key_with_a_limit_of_tokens_says_how_many_it_may_cost() -> None:
    async with crew(key("alice", limits=DAILY), BOB, engines=1, workers=1) as ((worker,), (engine,)):
        for cap in ({}, {"max_output_tokens": None}, {"max_output_tokens": 0}, {"max_output_tokens": "x"}):
            refused = await post(worker, background=True, **cap)
            assert (refused.status, refused.error["param"]) == (400, "max_output_tokens")
            assert "this key has a limit of tokens" in refused.error["message"]
        assert engine.bodies == []
        assert used(worker) == 0
        await make(worker, "bob", background=True)
        await make(worker, background=False)


async def test_what_is_set_aside_counts_at_once() -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        first = await make(worker, background=True, max_output_tokens=950)
        refused = await post(worker, background=True, max_output_tokens=950)
        assert (refused.status, refused.error["param"]) == (429, "tokens_per_minute")
        engine.finish(first, tokens=7)
        await ended(worker)
        assert (await post(worker, background=True, max_output_tokens=950)).status == 200


@pytest.mark.parametrize("said", [10**17, 10**30, 10**400])
async def test_a_number_beyond_reason_does_not_wash_away_what_was_used(said: int) -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        await make(worker)
        assert used(worker) == 8
        thing = await make(worker, background=True, max_output_tokens=said)
        assert used(worker) == 8 + MOST_TOKENS
        engine.finish(thing, tokens=1)
        await worker.until(lambda: not worker.pipeline._ends.background)
        assert used(worker) == 8 + 4
        assert (await post(worker)).status == 200, "neither does the minute stay full"


async def test_one_that_the_engine_refuses_costs_nothing() -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        refused = await post(
            worker, background=True, max_output_tokens=100, previous_response_id=await _own_but_gone(worker, engine)
        )
        assert refused.status == 404
        assert used(worker) == 8
        assert len(worker.pipeline._ends.background) == 0


async def _own_but_gone(worker: FakeWorker, engine: StoringEngine) -> str:
    thing = await make(worker)
    del engine.kept[thing]
    return thing


@pytest.mark.parametrize(
    "status, tokens, cost, outcome",
    [
        ("cancelled", None, 100, Outcome.CLIENT_GONE),
        ("cancelled", 20, 23, Outcome.CLIENT_GONE),
        ("failed", None, 0, Outcome.UPSTREAM_ERROR),
        ("incomplete", 100, 103, Outcome.OK),
    ],
)
async def test_however_it_ends(status: str, tokens: int | None, cost: int, outcome: Outcome) -> None:
    """Of one that its client has ended nobody can tell what it took: that is what it said it might."""
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        thing = await make(worker, background=True, max_output_tokens=100)
        engine.finish(thing, status=status, tokens=tokens)
        assert (await ended(worker)).outcome is outcome
        assert used(worker) == cost
        assert [it.split("|")[3] for it in worker.settler.outcomes] == [outcome], "counted once, by its end"


async def test_a_client_that_cancels_through_another_worker_pays_for_what_it_may_have_had() -> None:
    async with crew(key("alice", limits=DAILY)) as (workers, _):
        thing = await make(workers[0], background=True, max_output_tokens=100)
        assert (await cancel(workers[1], "alice", thing)).status == 200
        await ended(workers[0])
        assert (used(workers[0]), used(workers[1])) == (100, 0)


async def test_one_that_its_engine_has_lost_costs_nothing() -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        thing = await make(worker, background=True, max_output_tokens=100)
        del engine.kept[thing]  # as in a restart
        assert (await ended(worker)).outcome is Outcome.UPSTREAM_ERROR
        assert used(worker) == 0


async def test_a_backend_that_is_away_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        thing = await make(worker, background=True, max_output_tokens=100)
        await engine.backend.stop()
        await retrieve(worker, "alice", thing)  # has it looked for
        await asyncio.sleep(0)
        assert used(worker) == 100
        await engine.backend.start()
        engine.finish(thing, tokens=5)
        await ended(worker)
        assert used(worker) == 8
        monkeypatch.setattr(background, "SILENT_S", 0.0)
        await make(worker, background=True, max_output_tokens=100)
        await engine.backend.stop()
        await ended(worker, 2)
        assert used(worker) == 8, "and given up in the end"


async def test_the_client_of_a_stream_leaves_and_the_rest_is_charged_all_the_same() -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        async with raw_client(worker.port) as client:
            body = {"model": "tiny", "stream": True, "background": True, "max_output_tokens": 100}
            await client.post(body, path="/v1/responses", headers={"Authorization": "Bearer pk-alice"})
            await client.until(b"hello")
        await worker.until(lambda: len(worker.pipeline._ends.background) == 1)
        (thing,) = engine.kept
        engine.finish(thing, tokens=60)
        record = await ended(worker)
        assert record.summary is not None
        assert (record.outcome, record.summary.completion_tokens) == (Outcome.CLIENT_GONE, 60)
        assert used(worker) == 63


async def test_a_client_that_leaves_before_the_answer_pays_too() -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        engine.silent = True
        async with raw_client(worker.port) as client:
            body = {"model": "tiny", "background": True, "max_output_tokens": 100}
            await client.post(body, path="/v1/responses", headers={"Authorization": "Bearer pk-alice"})
            await (await engine.backend.exchange(0)).played.wait()
        await worker.until(lambda: len(worker.pipeline._ends.background) == 1)
        (thing,) = engine.kept
        engine.finish(thing, tokens=60)
        await ended(worker)
        assert used(worker) == 63


async def test_when_the_worker_ends_what_is_unfinished_counts_as_much_as_it_may_cost() -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), _):
        await make(worker, background=True, max_output_tokens=100)
        worker.pipeline.end_all()
        assert used(worker) == 100
        (record,) = worker.records
        assert record.endpoint == "responses"
        assert len(worker.pipeline._ends.background) == 0


async def test_no_more_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MOST", 2)
    async with crew(key("alice"), engines=1, workers=1) as ((worker,), (engine,)):
        things = [await make(worker, background=True) for _ in range(2)]
        refused = await post(worker, background=True)
        assert (refused.status, refused.error["code"]) == (429, "overloaded")
        engine.finish(things[0])
        await ended(worker)
        assert (await post(worker, background=True)).status == 200


async def test_what_an_engine_has_only_begun_clears_no_suspicion() -> None:
    """Of a request that engines may die of; see docs/routing.md."""
    async with crew(engines=1, workers=1) as ((worker,), (engine,)):
        bodies = {True: {"background": True}, False: {}}
        known = {
            kind: fingerprint(parse_body(json.dumps({"model": "tiny", "input": "x", **more}).encode(), RESPONSES))
            for kind, more in bodies.items()
        }
        worker.desk.apply(Quarantine(suspects=tuple(known.values()), until={}))
        thing = await make(worker, "", background=True)
        assert worker.failures == []
        await make(worker, "")
        await worker.until(lambda: [it.fingerprint for it in worker.failures] == [known[False]])
        engine.finish(thing)
        await ended(worker, 2)
        assert [it.fingerprint for it in worker.failures] == [known[False]]


async def test_without_keys_its_tokens_are_measured_too_and_an_id_that_is_there_twice_is_followed_once() -> None:
    async with crew(engines=1, workers=1) as ((worker,), (engine,)):
        for _ in range(2):
            await make(worker, "", background=True, request_id="resp_mine")
        assert len(worker.records) == 1
        engine.finish("resp_mine", tokens=9)
        record = await ended(worker, 2)
        assert record.summary is not None
        assert record.summary.completion_tokens == 9


@pytest.mark.looptime
async def test_it_is_asked_for_less_and_less_often() -> None:
    async with AsyncExitStack() as stack:
        engine = StoringEngine()
        await stack.enter_async_context(engine.backend)
        worker = await stack.enter_async_context(running_worker())
        worker.serve([backend_view(engine.backend.url)], policy=POLICY)
        thing = await make(worker, "", background=True, instructions="x")
        await asyncio.sleep(60)
        assert 8 <= engine.asked.count(f"GET /v1/responses/{thing}") <= 16
        engine.kept[thing]["instructions"] = "x" * 2_000_000
        await asyncio.sleep(20)
        before = len(engine.asked)
        await asyncio.sleep(60)
        assert len(engine.asked) - before <= 4


async def test_an_answer_too_long_to_be_read_ends_it() -> None:
    async with crew(key("alice", limits=DAILY), engines=1, workers=1) as ((worker,), (engine,)):
        thing = await make(worker, background=True, max_output_tokens=100)
        engine.kept[thing]["instructions"] = "x" * (worker.desk.snapshot.policy.limits.answer_tap_bytes + 1)
        engine.finish(thing, tokens=5)
        await ended(worker)
        assert used(worker) == 100, "nobody knows, so what was set aside counts"


@pytest.mark.timeout(180)
async def test_usage_tells_of_it_once_over_three_workers(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    replace_file(path, write_keys([key("alice", limits=DAILY)]))
    engine = StoringEngine()
    async with engine.backend:
        settings: dict[str, Any] = {"auth": {"clients": "keys", "keys_file": str(path)}}
        settings["parameters"] = {"background": True}
        async with gateway(tmp_path, {"a": engine.backend.url}, workers=3, **settings) as running:

            async def send(tokens: int) -> str:
                async with connection(running.clients) as client:
                    body = {"model": "tiny", "background": True, "max_output_tokens": tokens}
                    seen = await talk(client, "alice", "/v1/responses", method="POST", body=body)
                    return str(json.loads(seen.body)["id"])

            async def today() -> tuple[int, int]:
                seen = await get(running.clients, "/v1/usage", headers={"x-api-key": "pk-alice"})
                told = json.loads(seen.body)["today"]
                return told["requests"], told["tokens"]

            things = [await send(20) for _ in range(6)]
            for thing in things:
                engine.finish(thing, tokens=10)
                for _ in range(3):
                    async with connection(running.clients) as client:
                        seen = await talk(client, "alice", f"/v1/responses/{thing}", method="GET", body=None)
                        assert seen.status == 200

            async def is_told() -> bool:
                return (await today())[1] == 6 * 13

            await running.until(is_told, "all six were counted", within_s=30)
            assert (await today())[1] == 6 * 13
