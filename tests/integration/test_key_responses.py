"""A stored response belongs to the key that made it: at every worker, after any restart, and with no word to others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.control.keysfile import replace_file
from gateway.core.admission.keys import Key, digest_of
from gateway.core.request.response_id import is_response_of, response_id
from gateway.core.routing.parameters import ParameterPolicy
from gateway.core.routing.snapshot import WorkerPolicy
from gateway.settings.keys import write_keys
from tests.fakes.backend import Script, answer
from tests.fakes.client import Answer, RawClient, raw_client
from tests.fakes.gateway_process import connection, gateway
from tests.fakes.storing_engine import StoringEngine
from tests.fakes.worker import FakeWorker, backend_view, running_worker

pytestmark = pytest.mark.asyncio

POLICY = WorkerPolicy(parameters=ParameterPolicy(background=True))
UNKNOWN = response_id("nobody", chance=bytes(16))


def key(name: str, **given: Any) -> Key:
    return Key(id=name, digest=digest_of(f"pk-{name}"), **given)


ALICE, BOB = key("alice"), key("bob")


@asynccontextmanager
async def crew(
    *keys: Key, workers: int = 2, engines: int = 2, takes_ids: bool = True, lone: bool = True
) -> AsyncIterator[tuple[list[FakeWorker], list[StoringEngine]]]:
    """Workers in front of engines that keep responses; without ``keys`` clients need none."""
    async with AsyncExitStack() as stack:
        made = [StoringEngine(takes_ids=takes_ids) for _ in range(engines)]
        for engine in made:
            await stack.enter_async_context(engine.backend)
        running = [
            await stack.enter_async_context(running_worker(with_keys=bool(keys), lone=lone)) for _ in range(workers)
        ]
        for worker in running:
            worker.serve([backend_view(it.backend.url, f"e{at}") for at, it in enumerate(made)], policy=POLICY)
            if keys:
                worker.know(*keys)
        yield running, made


async def talk(client: RawClient, name: str, path: str, *, method: str, body: dict[str, Any] | None) -> Answer:
    headers = {"Authorization": f"Bearer pk-{name}", "X-Request-Id": "same"} if name else {}
    if method == "GET":
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        await client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n{lines}\r\n".encode())
    else:
        await client.post(b"" if body is None else body, path=path, headers=headers)
    return await client.answer()


async def post(worker: FakeWorker, name: str = "alice", **fields: Any) -> Answer:
    async with raw_client(worker.port) as client:
        return await talk(client, name, "/v1/responses", method="POST", body={"model": "tiny", "input": "x", **fields})


async def make(worker: FakeWorker, name: str = "alice", **fields: Any) -> str:
    """The id of a response that a key has made."""
    seen = await post(worker, name, **fields)
    assert seen.status == 200, seen.body
    if fields.get("stream"):
        first = json.loads(seen.events[0].partition(b"data: ")[2])
        return str(first["response"]["id"])
    return str(json.loads(seen.body)["id"])


async def get(worker: FakeWorker, name: str, thing: str, *, query: str = "") -> Answer:
    async with raw_client(worker.port) as client:
        return await talk(client, name, f"/v1/responses/{thing}{query}", method="GET", body=None)


async def cancel(worker: FakeWorker, name: str, thing: str) -> Answer:
    async with raw_client(worker.port) as client:
        return await talk(client, name, f"/v1/responses/{thing}/cancel", method="POST", body=None)


def same(answer: Answer) -> tuple[int, bytes, dict[str, str]]:
    """All that a client can see."""
    return answer.status, answer.body, answer.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_the_key_that_made_it_has_it_at_every_worker_and_goes_on_from_it(stream: bool) -> None:
    async with crew(ALICE, BOB) as (workers, engines):
        for _ in range(4):  # made at either engine
            thing = await make(workers[0], stream=stream)
            assert is_response_of(thing, "alice")
            for worker in workers:
                seen = await get(worker, "alice", thing)
                assert (seen.status, json.loads(seen.body)["id"]) == (200, thing)
                following = await post(worker, previous_response_id=thing)
                assert json.loads(following.body)["previous_response_id"] == thing
        assert all(engine.bodies for engine in engines)


@pytest.mark.parametrize("at", [0, 1], ids=["where it was made", "at another worker"])
async def test_another_key_is_told_what_it_is_told_of_an_id_that_nobody_made(at: int) -> None:
    async with crew(ALICE, BOB) as (workers, engines):
        thing = await make(workers[0], background=True)
        worker, before = workers[at], [list(engine.asked) for engine in engines]
        for ask in (get, cancel):
            assert same(await ask(worker, "bob", thing)) == same(await ask(worker, "bob", UNKNOWN))
        streamed = await get(worker, "bob", thing, query="?stream=true")
        assert same(streamed) == same(await get(worker, "bob", UNKNOWN, query="?stream=true"))
        refused = await post(worker, "bob", previous_response_id=thing)
        assert same(refused) == same(await post(worker, "bob", previous_response_id=UNKNOWN))
        assert (refused.status, refused.error["code"]) == (404, "not_found")
        assert refused.error["param"] == "previous_response_id"
        asked = [set(it.asked) - set(was) for it, was in zip(engines, before, strict=True)]
        assert all(it <= {f"GET /v1/responses/{thing}"} for it in asked), "no engine hears of it, so time tells nothing"
        assert (await get(workers[0], "alice", thing)).status == 200


async def test_where_an_engine_is_silent_another_key_s_response_is_as_unknown_as_ever() -> None:
    async with crew(ALICE, BOB, engines=1) as (workers, engines):
        thing = await make(workers[0])
        await engines[0].backend.stop()
        assert same(await get(workers[1], "bob", thing)) == same(await get(workers[1], "bob", UNKNOWN))
        assert (await get(workers[1], "bob", thing)).status == 404
        assert (await get(workers[1], "alice", thing)).status == 503, "its own may be there again later"


async def test_an_id_is_its_own_in_one_spelling_only() -> None:
    async with crew(ALICE, BOB) as (workers, engines):
        thing = await make(workers[0])
        for spelt in (thing.upper(), f"resp_{thing[5:].upper()}", f"{thing}0", thing[:-1], f"resp_-{thing[5:]}"):
            assert (await get(workers[1], "alice", spelt)).status == 404
            assert (await post(workers[1], "alice", previous_response_id=spelt)).status == 404
        assert sum(len(engine.asked) for engine in engines) == 1


async def test_a_client_cannot_name_its_response_as_another_key_s() -> None:
    async with crew(ALICE, BOB, engines=1) as (workers, engines):
        thing = await make(workers[0])
        kept = dict(engines[0].kept[thing])
        other = await make(workers[1], "bob", request_id=thing)
        assert other != thing
        assert engines[0].kept[thing] == kept
        mine = await make(workers[1], "bob", request_id=response_id("bob", chance=bytes(16)))
        assert mine in engines[0].kept
        assert UNKNOWN != mine != response_id("bob", chance=bytes(16)), "nor choose one that others could know"


async def test_ids_from_before_there_were_keys_are_nobody_s() -> None:
    async with crew(ALICE, BOB) as (workers, engines):
        engines[0].kept["resp_old"] = {"id": "resp_old", "status": "completed"}
        engines[0].kept["chosen"] = {"id": "chosen", "status": "completed"}
        assert (await get(workers[0], "alice", "resp_old")).status == 404
        for before in ("resp_old", "chosen"):
            assert (await post(workers[0], previous_response_id=before)).status == 404
        assert all(engine.bodies == [] for engine in engines)


async def test_the_owner_is_the_key_s_id_so_a_new_secret_keeps_what_the_old_one_made() -> None:
    async with crew(ALICE, BOB) as (workers, _):
        thing = await make(workers[0])
        renewed = Key(id="alice", digest=digest_of("pk-new"))
        for worker in workers:
            worker.know(renewed, BOB)
            assert (await get(worker, "alice", thing)).status == 401
            assert (await get(worker, "new", thing)).status == 200
            worker.know(key("alice", revoked_wall=1.0), BOB)
            assert (await get(worker, "alice", thing)).status == 401
            assert (await get(worker, "bob", thing)).status == 404


async def test_an_engine_that_chooses_its_own_ids_is_remembered_by_the_worker_that_asked_it() -> None:
    async with crew(ALICE, BOB, takes_ids=False) as (workers, _):
        thing = await make(workers[0])
        assert (await get(workers[0], "alice", thing)).status == 200
        assert (await get(workers[0], "bob", thing)).status == 404
        assert (await get(workers[1], "alice", thing)).status == 404, "who cannot tell lets nobody in"


async def test_without_keys_everything_is_as_the_client_and_the_engine_have_it() -> None:
    async with crew() as (workers, engines):
        thing = await make(workers[0], "", request_id="resp_chosen")
        assert thing == "resp_chosen"
        await make(workers[0], "")
        bodies = [body for engine in engines for body in engine.bodies]
        assert sorted(body.get("request_id", "") for body in bodies) == ["", "resp_chosen"]
        for worker in workers:
            assert (await get(worker, "", thing)).status == 200
            assert (await get(worker, "", "resp_nobody")).status == 404


async def test_what_the_body_says_otherwise_goes_upstream_as_it_came() -> None:
    async with crew(ALICE, engines=1) as (workers, engines):
        thing = await make(workers[0], store=False, user="u")
        (body,) = engines[0].bodies
        assert body == {"model": "tiny", "input": "x", "store": False, "user": "u", "request_id": thing}
        async with raw_client(workers[0].port) as client:
            engines[0].backend.add(Script((answer(b'{"id":"c","choices":[]}'),)))
            await client.post({"model": "tiny", "messages": []}, headers={"Authorization": "Bearer pk-alice"})
            await client.answer()
        assert "request_id" not in json.loads(engines[0].backend.exchanges[-1].request.body), "of responses alone"


@pytest.mark.timeout(180)
async def test_a_response_is_still_its_key_s_alone_when_workers_and_control_were_replaced(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    replace_file(path, write_keys([ALICE, BOB]))
    engine = StoringEngine()
    async with engine.backend:
        auth = {"clients": "keys", "keys_file": str(path)}
        async with gateway(tmp_path, {"a": engine.backend.url}, workers=2, auth=auth) as running:

            async def ask(name: str, thing: str) -> int:
                async with connection(running.clients) as client:
                    return (await talk(client, name, f"/v1/responses/{thing}", method="GET", body=None)).status

            async with connection(running.clients) as client:
                body = {"model": "tiny", "input": "x"}
                seen = await talk(client, "alice", "/v1/responses", method="POST", body=body)
            thing = json.loads(seen.body)["id"]
            assert {await ask("alice", thing) for _ in range(8)} == {200}
            assert {await ask("bob", thing) for _ in range(8)} == {404}
            for child in ("worker 0", "worker 1", "control"):
                after = running.now
                await running.kill(child)
                await running.event("worker.joined", after=after)
            await running.until(lambda: len(running.children()) == 3, "all are back")

            async def is_there() -> bool:
                return await ask("alice", thing) == 200

            await running.until(is_there, "it is found again")
            assert {await ask("bob", thing) for _ in range(8)} == {404}
