"""A backend that dies, before a byte or in the middle, in every way that a connection can tell, on every API.

The expected ends: before a byte of an answer 502, and no other backend is asked, since the first one may have begun;
in a stream what came, an error event and the end of the API, recorded as ``upstream_error``; of an answer in one piece
502, or a cut connection once it was flowing.  How soon after a SIGKILL is measured by ``tests/live``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.core.routing.snapshot import PoolView, WorkerPolicy
from gateway.core.routing.snapshot import TimerPolicy as Timers
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Ending, Outcome
from tests.conformance.targets import SimulatedServer
from tests.fakes.apis import APIS, COMPLETIONS, HEAD, JSON_HEAD, Api, chunk
from tests.fakes.backend import End, Script
from tests.fakes.client import Answer, raw_client
from tests.fakes.fault_stand import Stand, stand
from tests.fakes.worker import backend_view

pytestmark = pytest.mark.asyncio

all_apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
stream_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
closes_or_resets = pytest.mark.parametrize("end", [End.CLOSE, End.RESET], ids=["closes", "resets"])

BREAKS: Final[dict[str, tuple[bytes, End, Ending, str]]] = {
    "closes": (b"", End.CLOSE, Ending.EOF, "backend_died"),
    "resets": (b"", End.RESET, Ending.RESET, "backend_died"),
    "closes inside a chunk": (b"40\r\ndata: {", End.CLOSE, Ending.EOF, "backend_died"),
    "resets inside a chunk": (b"40\r\ndata: {", End.RESET, Ending.RESET, "backend_died"),
    "closes inside an event": (chunk(b"data: {"), End.CLOSE, Ending.EOF, "backend_died"),
    "ends without the end marker": (TERMINATOR, End.KEEP_ALIVE, Ending.COMPLETE, "backend_died"),
    "ends inside an event": (chunk(b"data: {") + TERMINATOR, End.KEEP_ALIVE, Ending.COMPLETE, "backend_died"),
    "cuts the size of a chunk": (b"zz\r\n", End.HANG, Ending.BAD_FRAMING, "backend_garbled"),
    "cuts the end of a chunk": (b"3\r\nabcdef", End.HANG, Ending.BAD_FRAMING, "backend_garbled"),
    "answers again inside its answer": (HEAD, End.HANG, Ending.BAD_FRAMING, "backend_garbled"),
}


async def asked(at: Stand, api: Api, *, stream: bool = True, **more: Any) -> Answer:
    async with raw_client(at.worker.port) as client:
        await client.post(api.request(stream=stream) | more, path=api.path)
        return await client.answer()


@all_apis
@pytest.mark.parametrize("way", BREAKS)
async def test_a_stream_that_breaks_ends_in_an_error_event_and_is_not_retried(api: Api, way: str) -> None:
    piece, end, ending, code = BREAKS[way]
    async with stand() as at:
        at.plays(api.breaking(*filter(None, [piece]), end=end))
        seen = await asked(at, api)
        begun = b"".join(api.begun)
        assert (seen.status, seen.whole) == (200, True)
        assert seen.body.startswith(begun)
        assert api.told(seen.body.removeprefix(begun)) == api.names(code, status=502)
        record = await at.ended(Outcome.UPSTREAM_ERROR)
        assert (record.ending, record.error_code, record.attempts) == (ending, code, 1)
        assert {it.code for it in at.worker.failures} <= {code}
        assert bool(at.worker.failures) is (ending is not Ending.COMPLETE), "its own end is judged by the record"


@all_apis
@pytest.mark.parametrize("way", BREAKS)
async def test_a_stream_that_breaks_under_an_http_1_0_client_ends_in_an_error_event_too(api: Api, way: str) -> None:
    """Without chunks only the end of the connection ends the answer, so the error must be inside it."""
    piece, end, _, code = BREAKS[way]
    async with stand() as at:
        at.plays(api.breaking(*filter(None, [piece]), end=end))
        async with raw_client(at.worker.port) as client, asyncio.timeout(40):
            await client.post(api.request(), path=api.path, version="1.0")
            _, _, body = (await client.reader.read(-1)).partition(b"\r\n\r\n")
        begun = b"".join(api.begun)
        assert body.startswith(begun)
        assert api.told(body.removeprefix(begun)) == api.names(code, status=502)
        await at.ended(Outcome.UPSTREAM_ERROR)


@all_apis
@stream_or_not
@closes_or_resets
@pytest.mark.parametrize("sent", ["nothing", "half a head", "a head"])
async def test_a_backend_that_dies_before_a_byte_is_a_502_and_nobody_else_is_asked(
    api: Api, sent: str, end: End, *, stream: bool
) -> None:
    head = HEAD if stream else JSON_HEAD % 100
    pieces = {"nothing": (), "half a head": (head[:30],), "a head": (head,)}[sent]
    async with stand() as at:
        at.plays(Script(pieces, end))
        seen = await asked(at, api, stream=stream)
        assert (seen.status, seen.whole) == (502, True)
        assert api.refused(seen) == api.names("backend_died", status=502)
        record = await at.ended(Outcome.UPSTREAM_ERROR)
        assert (record.attempts, record.error_code) == (1, "backend_died")
        assert [it.code for it in at.worker.failures] == ["backend_died"]


@all_apis
@closes_or_resets
async def test_an_answer_in_one_piece_that_breaks_is_a_502_or_a_cut_and_never_whole(api: Api, end: End) -> None:
    short = Script((JSON_HEAD % len(api.whole) + api.whole[:-3],), end)
    long = Script((JSON_HEAD % 2_000_000 + b"x" * 1_000_000,), end)
    async with stand(1) as at:
        at.plays(short, long)
        seen = await asked(at, api, stream=False)
        assert (seen.status, api.refused(seen)) == (502, api.names("backend_died", status=502))
        seen = await asked(at, api, stream=False)
        assert (seen.status, seen.whole) == (200, False)
        await at.worker.record(1)
        assert {it.outcome for it in at.worker.records} == {Outcome.UPSTREAM_ERROR}
        assert at.asked == 2


@all_apis
@stream_or_not
@closes_or_resets
async def test_a_kept_connection_that_dies_under_the_next_request_is_a_502_and_not_replayed(
    api: Api, end: End, *, stream: bool
) -> None:
    """The request was written: the backend may have begun, whatever the connection was used for before."""
    async with stand(1, policy=WorkerPolicy(timers=Timers(upstream_idle_s=600))) as at:
        at.plays(api.good(stream=stream), Script((), end))
        assert (await asked(at, api, stream=stream)).status == 200
        seen = await asked(at, api, stream=stream)
        assert (seen.status, api.refused(seen)) == (502, api.names("backend_died", status=502))
        assert (at.asked, at.a.accepted) == (2, 1)
        assert (await at.worker.record(1)).outcome is Outcome.UPSTREAM_ERROR


@all_apis
async def test_a_backend_that_dies_while_it_is_sent_a_long_body_is_a_502_and_not_replayed(api: Api) -> None:
    async with stand() as at:
        at.plays(Script((), End.RESET, early=True))
        seen = await asked(at, api, user="x" * 20_000_000)
        assert (seen.status, api.refused(seen)) == (502, api.names("backend_died", status=502))
        await at.ended(Outcome.UPSTREAM_ERROR)


@all_apis
async def test_a_client_whose_stream_broke_asks_again_on_the_same_connection(api: Api) -> None:
    async with stand(1) as at:
        at.plays(api.breaking(end=End.RESET), api.good())
        async with raw_client(at.worker.port) as client:
            await client.post(api.request(), path=api.path)
            assert (await client.answer()).whole
            await client.post(api.request(), path=api.path)
            assert (await client.answer()).body == api.stream
        await at.worker.record(1)
        assert [it.outcome for it in at.worker.records] == [Outcome.UPSTREAM_ERROR, Outcome.OK]


@all_apis
@stream_or_not
async def test_a_death_gives_the_place_on_the_backend_to_the_next_that_waits(api: Api, *, stream: bool) -> None:
    free = asyncio.Event()
    async with stand(1, pool=PoolView(name="main", concurrency=1)) as at:
        worker = at.worker
        at.plays(Script((free,), End.RESET), api.good(stream=stream))
        async with raw_client(worker.port) as first, raw_client(worker.port) as second:
            await first.post(api.request(stream=stream), path=api.path)
            await at.accepted()
            await second.post(api.request(stream=stream), path=api.path)
            await worker.until(lambda: worker.gate.flows() == {"main": {"": (1, 1)}})
            free.set()
            assert (await first.answer()).status == 502
            seen = await second.answer()
        assert (seen.status, seen.body) == (200, api.stream if stream else api.whole)


# --- real processes ---


async def streaming(
    at: Stand, server: SimulatedServer, end: Callable[[], None], *, stall_s: float
) -> dict[str, tuple[bytes, Answer]]:
    """Endless streams of all four APIs; what was there when ``end`` was called, and what it came to."""
    timers = Timers(stall_s=stall_s, silent_max_s=stall_s)
    at.worker.serve([backend_view(f"http://127.0.0.1:{server.port}")], policy=WorkerPolicy(timers=timers))
    clients = [raw_client(at.worker.port) for _ in APIS]
    found: dict[str, tuple[bytes, Answer]] = {}
    opened = [await it.__aenter__() for it in clients]
    try:
        for api, client in zip(APIS, opened, strict=True):
            length = "max_output_tokens" if api.path == "/v1/responses" else "max_tokens"
            await client.post(api.request() | {length: 2000, "ignore_eos": True}, path=api.path)
            await client.until(b"delta" if api is not COMPLETIONS else b'"text"')
        end()
        for api, client in zip(APIS, opened, strict=True):
            before = (await client.until(b"data")).body
            found[api.name] = before, await client.answer(timeout_s=40)
    finally:
        for it in clients:
            await it.__aexit__(None, None, None)
    return found


def killed(server: SimulatedServer) -> Callable[[], None]:
    return server.kill


def stopped(server: SimulatedServer) -> Callable[[], None]:
    return lambda: server.send(signal.SIGTERM)


@pytest.mark.parametrize(
    "ends, stall_s, outcome, code",
    [
        (killed, 600.0, Outcome.UPSTREAM_ERROR, "backend_died"),
        (stopped, 2.0, Outcome.UPSTREAM_TIMEOUT, "backend_stalled"),
    ],
    ids=["SIGKILL", "SIGTERM and silence"],
)
async def test_an_engine_process_that_ends_under_its_streams_ends_each_by_an_error_event(
    start: Callable[..., SimulatedServer], ends: Any, stall_s: float, outcome: Outcome, code: str
) -> None:
    """A simulated vLLM in a process of its own, with one stream of each API; the real one is in ``tests/live``."""
    server = start(sigterm="hang", speed=1.0)
    async with stand(0) as at:
        for name, (before, seen) in (await streaming(at, server, ends(server), stall_s=stall_s)).items():
            api = next(it for it in APIS if it.name == name)
            assert (seen.status, seen.whole) == (200, True), name
            assert seen.body.startswith(before)
            assert api.told_last(seen.body) == api.names(code, status=504 if ends is stopped else 502)
            assert b'"finish_reason":"' not in seen.body
        await at.worker.record(3)
        assert {(it.outcome, it.error_code, it.attempts) for it in at.worker.records} == {(outcome, code, 1)}
        server.kill()
