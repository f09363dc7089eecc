"""Keys over sockets: who is let in, for what, how much, and that no key is ever seen anywhere behind."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gateway.core.admission.keys import Key, KeyDefaults, KeyLimits, KeyScope, digest_of
from gateway.core.admission.usage import KeyUsage, UsageCount
from gateway.core.link.messages import Shares, UsageTold
from gateway.core.request.response_id import response_id
from gateway.core.routing.snapshot import ModelCard, PoolView
from tests.fakes.backend import Request, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, RawClient, raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker

pytestmark = pytest.mark.asyncio

SECRET = "pk-sentinel-of-alice-5f2c"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}


def key(key_id: str = "alice", secret: str = SECRET, **given: Any) -> Key:
    return Key(id=key_id, digest=digest_of(secret), **given)


def completion(tokens: int = 10) -> bytes:
    usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    choice = {"index": 0, "message": {"role": "assistant", "content": "y"}, "finish_reason": "stop"}
    return answer(json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode())


def answering(_request: Request) -> Script:
    return Script((completion(),))


@asynccontextmanager
async def keyed(*keys: Key, lone: bool = True) -> AsyncIterator[tuple[ScriptedBackend, FakeWorker]]:
    async with ScriptedBackend(answerer=answering) as backend, running_worker(with_keys=True, lone=lone) as worker:
        worker.serve([backend_view(backend.url, models=("tiny", "large"))])
        worker.know(*keys)
        yield backend, worker


async def ask(
    worker: FakeWorker, secret: str = SECRET, *, body: dict[str, Any] = ASK, headers: dict[str, str] | None = None
) -> Answer:
    async with raw_client(worker.port) as client:
        await client.post(body, headers={"Authorization": f"Bearer {secret}"} | (headers or {}))
        return await client.answer()


async def get(client: RawClient, path: str, *headers: str) -> Answer:
    lines = "".join(f"{line}\r\n" for line in headers)
    await client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n{lines}\r\n".encode())
    return await client.answer()


async def test_a_good_key_is_let_in_by_either_header_and_stands_in_the_record_by_its_id() -> None:
    async with keyed(key()) as (backend, worker):
        assert (await ask(worker)).status == 200
        async with raw_client(worker.port) as client:
            await client.post(ASK, headers={"x-api-key": SECRET})
            assert (await client.answer()).status == 200
        assert [(await worker.record(at)).key_id for at in (0, 1)] == ["alice", "alice"]
        for exchange in backend.exchanges:
            assert b"authorization" not in exchange.request.head.lower()
            assert b"x-api-key" not in exchange.request.head.lower()


@pytest.mark.parametrize("secret", ["", "pk-unknown", "pk-revoked", "pk-expired"])
async def test_every_other_key_is_refused_alike_before_the_body_is_read_and_no_backend_hears_of_it(secret: str) -> None:
    keys = (
        key(),
        key("r", "pk-revoked", revoked_wall=1.0),
        key("e", "pk-expired", expires_wall=1.0),
    )
    async with keyed(*keys) as (backend, worker):
        async with raw_client(worker.port) as client:
            line = f"Authorization: Bearer {secret}\r\n" if secret else ""
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n{line}Content-Length: 1000000\r\n"
            await client.send(f"{head}Content-Type: application/json\r\n\r\n".encode())
            seen = await client.answer()
        assert (seen.status, seen.error["code"]) == (401, "invalid_api_key")
        assert seen.headers["www-authenticate"] == "Bearer"
        assert secret not in seen.error["message"] or not secret
        assert backend.exchanges == []
        record = await worker.record()
        assert (record.key_id, record.error_code) == ("", "invalid_api_key")
        assert worker.gate.refusals == {"|invalid_api_key": 1}


async def test_a_key_is_for_its_models_and_scopes_whether_there_are_such_models_or_not() -> None:
    keys = (key(models=("tiny",)), key("u", "pk-usage", scopes=(KeyScope.USAGE,)))
    async with keyed(*keys) as (backend, worker):
        assert (await ask(worker)).status == 200
        for model in ("large", "no-such-model", ""):
            refused = await ask(worker, body={**ASK, "model": model})
            assert (refused.status, refused.error["code"]) == (403, "key_forbidden"), model
            assert f"`{model or 'model'}`" in refused.error["message"]
        refused = await ask(worker, "pk-usage")
        assert (refused.status, refused.error["code"]) == (403, "key_forbidden")
        assert len(backend.exchanges) == 1


async def test_a_key_for_some_models_may_ask_for_what_was_made_before() -> None:
    async with keyed(key(models=("tiny",))) as (backend, worker), raw_client(worker.port) as client:
        path = "/v1/responses/" + response_id("alice", chance=bytes(16))
        backend.fixed[path] = answer(b'{"id":"resp_1","object":"response","status":"completed"}')
        assert (await get(client, path)).status == 401
        seen = await get(client, path, f"Authorization: Bearer {SECRET}")
        assert seen.status == 200


async def test_the_list_of_models_is_that_of_the_key_and_health_takes_none() -> None:
    async with keyed(key(models=("la*",))) as (backend, worker), raw_client(worker.port) as client:
        cards = [ModelCard(id=name, raw=b'{"id":"%b"}' % name.encode()) for name in ("tiny", "large")]
        worker.serve([backend_view(backend.url)], cards=cards)
        assert (await get(client, "/v1/models")).status == 401
        models = await get(client, "/v1/models", f"Authorization: Bearer {SECRET}")
        assert [it["id"] for it in json.loads(models.body)["data"]] == ["large"]
        for path in ("/health", "/ready", "/version"):
            assert (await get(client, path)).status == 200, path


async def test_wrong_keys_of_one_address_are_slowed_down_and_good_ones_are_not() -> None:
    async with keyed(key()) as (_, worker):
        statuses = [(await ask(worker, f"pk-wrong-{at}")).status for at in range(25)]
        assert statuses.count(401) in {20, 21}
        assert statuses[-1] == 429
        late = await ask(worker, "pk-wrong")
        assert late.error["code"] == "too_many_attempts"
        assert int(late.headers["retry-after"]) >= 1
        assert (await ask(worker)).status == 200


async def test_before_the_keys_are_known_nobody_is_let_in_and_nobody_is_called_wrong() -> None:
    async with ScriptedBackend() as backend, running_worker(with_keys=True) as worker:
        worker.serve([backend_view(backend.url)])
        assert not worker.gate.open
        seen = await ask(worker)
        assert (seen.status, seen.error["code"], seen.headers["retry-after"]) == (503, "control_away", "1")


async def test_requests_a_minute_are_exact_with_one_worker() -> None:
    async with keyed(key(limits=KeyLimits(requests_per_minute=5)), key("b", "pk-b")) as (_, worker):
        statuses = [(await ask(worker)).status for _ in range(8)]
        assert statuses == [200] * 5 + [429] * 3
        refused = await ask(worker)
        assert refused.error == {
            "message": "the limit of this key is used up: 5 requests a minute",
            "type": "rate_limit_error",
            "param": "requests_per_minute",
            "code": "quota_exceeded",
        }
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert (await ask(worker, "pk-b")).status == 200, "another key pays nothing for it"
        assert worker.gate.refusals == {"main|requests_per_minute": 4}


async def test_requests_that_no_backend_heard_of_do_not_count() -> None:
    async with keyed(key(limits=KeyLimits(requests_per_minute=2))) as (backend, worker):
        worker.serve([])
        assert {(await ask(worker)).status for _ in range(5)} <= {503, 404}
        worker.serve([backend_view(backend.url)])
        assert [(await ask(worker)).status for _ in range(3)] == [200, 200, 429]


async def test_tokens_are_charged_when_they_are_known_and_the_balance_decides() -> None:
    limits = KeyLimits(tokens_per_minute=30, tokens_per_day=10_000)
    async with keyed(key(limits=limits)) as (_, worker):
        assert [(await ask(worker)).status for _ in range(3)] == [200, 200, 429], "15 tokens each"
        assert (await ask(worker)).error["param"] == "tokens_per_minute"


async def test_what_others_have_used_of_a_day_counts_for_a_worker_alone() -> None:
    async with keyed(key(limits=KeyLimits(tokens_per_day=100))) as (_, worker):
        worker.desk.apply(Shares(in_flight_limit=10, others_in_flight={}, spent={"day:alice": 90}))
        assert [(await ask(worker)).status for _ in range(2)] == [200, 429]


async def test_requests_at_once_are_bounded_and_each_end_lets_another_in() -> None:
    async with keyed(key(limits=KeyLimits(concurrency=2))) as (backend, worker):
        go = asyncio.Event()
        backend.add(*[Script((go, completion()))] * 2)
        async with asyncio.TaskGroup() as group:
            first = [group.create_task(ask(worker)) for _ in range(2)]
            await backend.exchange(1)
            third = await ask(worker)
            assert (third.status, third.error["param"]) == (429, "concurrency")
            go.set()
        assert [task.result().status for task in first] == [200, 200]
        assert (await ask(worker)).status == 200


async def test_with_siblings_a_request_waits_a_moment_for_a_share_and_hurries_control() -> None:
    async with keyed(key(limits=KeyLimits(concurrency=4)), lone=False) as (_, worker):
        asking = asyncio.get_running_loop().create_task(ask(worker))
        await worker.until(lambda: worker.hurries > 0)
        assert worker.gate.claims()["concurrency:alice"].waiting == 1
        worker.desk.apply(Shares(in_flight_limit=10, others_in_flight={}, limits={"concurrency:alice": 1}))
        assert (await asking).status == 200
        assert worker.gate.claims()["concurrency:alice"].waiting == 0


async def test_with_siblings_a_share_that_does_not_come_is_a_429() -> None:
    async with keyed(key(limits=KeyLimits(concurrency=4)), lone=False) as (_, worker):
        seen = await ask(worker)
        assert (seen.status, seen.error["param"]) == (429, "concurrency")


async def test_a_key_is_revoked_between_two_requests_of_one_connection() -> None:
    async with keyed(key()) as (_, worker), raw_client(worker.port) as client:
        for known, status in ((key(), 200), (key(revoked_wall=1.0), 401), (key(), 200)):
            worker.know(known)
            await client.post(ASK, headers={"Authorization": f"Bearer {SECRET}"})
            assert (await client.answer()).status == status
        worker.know()
        await client.post(ASK, headers={"Authorization": f"Bearer {SECRET}"})
        assert (await client.answer()).status == 401


async def test_what_a_key_gets_by_default_and_what_a_request_says_instead() -> None:
    async with keyed(key(defaults=KeyDefaults(metrics="usage"))) as (_, worker):
        assert b"pacekeeper" in (await ask(worker)).body
        assert b"pacekeeper" not in (await ask(worker, headers={"X-Gateway-Metrics": "none"})).body


async def test_a_key_is_told_its_own_usage() -> None:
    async with keyed(key(name="Alice", limits=KeyLimits(tokens_per_day=500))) as (_, worker):
        async with raw_client(worker.port) as client:
            asking = asyncio.get_running_loop().create_task(get(client, "/v1/usage", f"Authorization: Bearer {SECRET}"))
            await worker.until(lambda: bool(worker.questions))
            (question,) = worker.questions
            assert question.key_id == "alice"
            count = UsageCount(requests=2, prompt_tokens=10, completion_tokens=30, reasoning_tokens=12)
            usage = KeyUsage(
                since_wall=86400.0,
                today=count,
                models={"tiny": count},
                minute_requests=1,
                minute_tokens=20,
                complete=True,
                minute_empty_s=41.2,
                held={"day": 140, "concurrency": 1},
            )
            worker.usage.told(UsageTold(number=question.number + 1, usage=usage))
            worker.usage.told(UsageTold(number=question.number, usage=usage))
            seen = await asking
        assert seen.status == 200
        told = json.loads(seen.body)
        counted = {"requests": 2, "prompt_tokens": 10, "completion_tokens": 30, "reasoning_tokens": 12, "tokens": 40}
        day = {"since": 86400, "until": 172800, "token_limit": 500, "tokens_left": 360}
        assert told["today"] == {**day, **counted}
        assert told["models"] == {"tiny": counted}
        assert told["minute"] == {
            "requests": 1,
            "request_limit": None,
            "requests_left": None,
            "tokens": 20,
            "token_limit": None,
            "tokens_left": None,
            "empty_in_s": 42,
        }
        assert told["concurrency"] == {"limit": None, "left": None}
        assert (told["key"], told["name"], told["approximate"]) == ("alice", "Alice", False)


async def test_without_keys_there_is_no_usage_and_every_header_is_let_pass() -> None:
    async with ScriptedBackend(answerer=answering) as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        assert (await ask(worker, "whatever")).status == 200
        async with raw_client(worker.port) as client:
            assert (await get(client, "/v1/usage")).status == 404


async def test_a_key_stands_in_no_log_record_message_or_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[bytes] = []
    limits = KeyLimits(requests_per_minute=2)
    async with keyed(key(limits=limits), key("b", "pk-sentinel-wrong", revoked_wall=1.0)) as (backend, worker):
        for secret in (SECRET, SECRET, SECRET, "pk-sentinel-wrong", "pk-sentinel-unknown"):
            for body in (ASK, {**ASK, "model": "nope"}):
                answered = await ask(worker, secret, body=body)
                seen += [answered.body, str(answered.headers).encode()]
        seen += [it.request.head + it.request.body for it in backend.exchanges]
        seen += [msgspec.msgpack.encode(worker.records), str(worker.gate.refusals).encode()]
        seen += [msgspec.msgpack.encode(worker.gate.claims())]
    seen.append(caplog.text.encode())
    assert len(worker.records) == 10
    assert not any(b"sentinel" in text for text in seen)


async def test_a_key_is_for_adapters_by_their_names_as_for_models() -> None:
    async with keyed(key(models=("poet*",)), key("b", "pk-b", models=("tiny",))) as (backend, worker):
        worker.serve(
            [backend_view(backend.url, models=("tiny", "poet-1"))], pools=[PoolView(name="main", adapters=("poet-1",))]
        )
        assert (await ask(worker, body=ASK | {"model": "poet-1"})).status == 200
        for secret, model in ((SECRET, "tiny"), ("pk-b", "poet-1")):
            seen = await ask(worker, secret, body=ASK | {"model": model})
            assert (seen.status, seen.error["code"]) == (403, "key_forbidden")
        assert len(backend.exchanges) == 1
