"""What a key pays for requests that end badly: tokens once, whatever the end; nothing for what no backend heard of.

Seen by what the worker tells control that it holds of the key's limits, and by who is let in next.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.admission.keys import Key, KeyLimits, digest_of
from gateway.core.link.messages import RequestRecord
from gateway.core.routing.snapshot import PoolView, TimerPolicy, WorkerPolicy
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Exactness, Outcome
from tests.fakes.apis import APIS, CHAT, COMPLETIONS, HEAD, Api, chunk
from tests.fakes.backend import End, Script, answer
from tests.fakes.client import Answer, RawClient, raw_client
from tests.fakes.fault_stand import LEAVE, Stand, stand
from tests.fakes.half_open import mute_listener
from tests.fakes.worker import backend_view

pytestmark = pytest.mark.asyncio

all_apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
stream_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
ways_to_leave = pytest.mark.parametrize("leave", LEAVE, ids=["closes", "resets"])
ALICE = {"Authorization": "Bearer pk-alice"}


def alice(**limits: int) -> list[Key]:
    given = KeyLimits(**{"tokens_per_day": 100_000, "concurrency": 1, **limits})
    return [Key(id="alice", digest=digest_of("pk-alice"), limits=given)]


async def post(client: RawClient, api: Api, *, stream: bool = True) -> None:
    await client.post(api.request(stream=stream), path=api.path, headers=ALICE)


async def asked(at: Stand, api: Api, *, stream: bool = True) -> Answer:
    async with raw_client(at.worker.port) as client:
        await post(client, api, stream=stream)
        return await client.answer()


def charged(at: Stand) -> int:
    """Tokens of today that the key has been charged."""
    claim = at.worker.gate.claims().get("day:alice")
    return 0 if claim is None else claim.holding


def cost(record: RequestRecord) -> int:
    summary = record.summary
    return 0 if summary is None else (summary.prompt_tokens or 0) + (summary.completion_tokens or 0)


# --- tokens -------------------------------------------------------------------------------------------------------


@all_apis
@pytest.mark.parametrize("end", [End.CLOSE, End.RESET], ids=["closes", "resets"])
async def test_a_stream_that_dies_is_charged_once_for_what_came(api: Api, end: End) -> None:
    async with stand(1, keys=alice()) as at:
        at.plays(api.breaking(*map(chunk, [api.hello] * 9), end=end), api.good())
        await asked(at, api)
        record = await at.ended(Outcome.UPSTREAM_ERROR)
        assert record.summary is not None
        assert record.summary.total_exactness is Exactness.ESTIMATED
        assert cost(record) >= 10, "a token at least for each piece of text"
        assert charged(at) == cost(record)
        assert (await asked(at, api)).body == api.stream
        await at.worker.record(1)
        assert charged(at) == cost(record) + 9, "and the next one for itself alone"


@pytest.mark.parametrize("end", [End.CLOSE, End.RESET], ids=["closes", "resets"])
@pytest.mark.parametrize("api", [CHAT, COMPLETIONS], ids=lambda api: api.name)
async def test_a_stream_that_dies_behind_its_usage_is_charged_that(api: Api, end: End) -> None:
    async with stand(1, keys=alice()) as at:
        at.plays(Script((HEAD, *map(chunk, (*api.begun, *api.ending[:-1]))), end))
        await asked(at, api)
        assert charged(at) == cost(await at.ended(Outcome.UPSTREAM_ERROR)) == 9


@all_apis
@ways_to_leave
async def test_a_client_that_leaves_is_charged_once_for_what_it_had(api: Api, leave: Any) -> None:
    async with stand(1, keys=alice()) as at:
        at.plays(api.breaking(*map(chunk, [api.hello] * 9), end=End.HANG))
        async with raw_client(at.worker.port) as client:
            await post(client, api)
            exchange = await at.accepted()
            await exchange.played.wait()
            await client.until(api.hello * 10)
            leave(client)
            await at.cancelled(exchange)
        record = await at.ended(Outcome.CLIENT_GONE)
        assert charged(at) == cost(record) >= 10


@all_apis
@stream_or_not
async def test_what_never_came_costs_no_tokens(api: Api, *, stream: bool) -> None:
    async with stand(1, keys=alice()) as at:
        at.plays(Script((HEAD,) if stream else (), End.RESET))
        assert (await asked(at, api, stream=stream)).status == 502
        await at.ended(Outcome.UPSTREAM_ERROR)
        assert charged(at) == 0


@all_apis
@stream_or_not
async def test_a_request_that_went_elsewhere_is_charged_once(api: Api, *, stream: bool) -> None:
    async with stand(keys=alice()) as at:
        busy = Script((answer(b'{"error":{"message":"busy"}}', status=503),))
        at.a.add(busy)
        at.backends[1].add(busy)
        assert (await asked(at, api, stream=stream)).status == 503
        for backend in at.backends:
            backend.add(busy if backend is at.a else api.good(stream=stream))
        assert (await asked(at, api, stream=stream)).status == 200
        await at.worker.record(1)
        assert charged(at) == 9


@all_apis
async def test_a_key_is_over_its_limit_by_what_a_dead_stream_cost(api: Api) -> None:
    """The balance decides, not whether answers ended well: else a client could read for nothing by leaving early."""
    async with stand(1, keys=alice(tokens_per_minute=8)) as at:
        at.plays(api.breaking(*map(chunk, [api.hello] * 9), end=End.RESET))
        await asked(at, api)
        await at.worker.record()
        seen = await asked(at, api)
        assert (seen.status, api.refused(seen)) == (429, api.names("quota_exceeded", status=429))
        assert 1 <= int(seen.headers["retry-after"]) <= 60
        assert at.asked == 1


# --- requests -----------------------------------------------------------------------------------------------------


@all_apis
@stream_or_not
async def test_a_request_that_a_backend_died_of_counts_as_one_of_the_minute(api: Api, *, stream: bool) -> None:
    async with stand(1, keys=alice(requests_per_minute=2)) as at:
        at.plays(*[Script((), End.RESET)] * 2)
        assert [(await asked(at, api, stream=stream)).status for _ in range(3)] == [502, 502, 429]


@all_apis
@stream_or_not
@pytest.mark.parametrize("away", ["refusing", "mute"])
async def test_requests_that_no_backend_could_be_reached_for_do_not_count(api: Api, away: str, *, stream: bool) -> None:
    with mute_listener() as port:
        async with stand(1, keys=alice(requests_per_minute=2)) as at:
            if away == "refusing":
                await at.a.stop()
            else:
                policy = WorkerPolicy(timers=TimerPolicy(connect_s=0.05))
                at.worker.serve([backend_view(f"http://127.0.0.1:{port}")], policy=policy)
            assert {(await asked(at, api, stream=stream)).status for _ in range(4)} == {503}
            if away == "refusing":
                await at.a.start()
            else:
                at.worker.serve([backend_view(at.a.url)])
            at.plays(*[api.good(stream=stream)] * 2)
            assert [(await asked(at, api, stream=stream)).status for _ in range(3)] == [200, 200, 429]


@all_apis
@ways_to_leave
async def test_a_client_that_leaves_while_queued_gives_its_request_back(api: Api, leave: Any) -> None:
    limits = {"requests_per_minute": 2, "concurrency": 2}
    free = asyncio.Event()
    async with stand(1, keys=alice(**limits), pool=PoolView(name="main", concurrency=1)) as at:
        worker = at.worker
        at.plays(Script((free, *api.good().pieces)), api.good())
        async with raw_client(worker.port) as first:
            await post(first, api)
            await at.accepted()
            for number in range(3):
                async with raw_client(worker.port) as leaver:
                    await post(leaver, api)
                    await worker.until(lambda: worker.gate.flows() == {"main": {"alice": (1, 1)}})
                    leave(leaver)
                    await worker.record(number)
            free.set()
            assert (await first.answer()).body == api.stream
        assert [(await asked(at, api)).status for _ in range(2)] == [200, 429]
        assert charged(at) == 18


@all_apis
@stream_or_not
async def test_a_death_lets_the_next_request_of_the_key_in(api: Api, *, stream: bool) -> None:
    async with stand(1, keys=alice()) as at:
        free = asyncio.Event()
        at.plays(Script((HEAD, free) if stream else (free,), End.RESET), api.good(stream=stream))
        async with raw_client(at.worker.port) as first:
            await post(first, api, stream=stream)
            await at.accepted()
            refused = await asked(at, api, stream=stream)
            assert (refused.status, api.refused(refused)) == (429, api.names("quota_exceeded", status=429))
            free.set()
            assert (await first.answer()).status == 502
        await at.worker.until(lambda: len(at.worker.records) == 2)
        assert (await asked(at, api, stream=stream)).status == 200


@all_apis
async def test_a_stream_without_the_end_marker_costs_what_it_said_and_no_more(api: Api) -> None:
    async with stand(1, keys=alice()) as at:
        at.plays(api.breaking(TERMINATOR, end=End.KEEP_ALIVE))
        await asked(at, api)
        assert charged(at) == cost(await at.ended(Outcome.UPSTREAM_ERROR))
