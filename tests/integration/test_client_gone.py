"""A client that leaves is seen by the backend at once, whatever is going on: streaming, silent, not a stream."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.routing.snapshot import LimitPolicy, TimerPolicy, WorkerPolicy
from gateway.core.stream.summary import Ending, Flag, Outcome
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.client import RawClient, raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker
from tests.integration.test_relay_endings import HEAD, HELLO, REQUEST, ROLE, chunk

pytestmark = pytest.mark.asyncio

LEAVE_S = 30.0
"""Bound of a wait, not a measurement: the measured figures come from the live tier."""


async def _seen_by_backend(backend: ScriptedBackend) -> None:
    exchange = await backend.exchange(0)
    async with asyncio.timeout(LEAVE_S):
        await exchange.client_closed.wait()


async def _returned_to_rest(worker: FakeWorker) -> None:
    record = await worker.record()
    assert record.outcome is Outcome.CLIENT_GONE
    assert worker.desk.in_flight == {}
    assert worker.desk.holding == 0
    assert worker.failures == [], "a client that leaves is nobody's fault"


@pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset], ids=["closes", "resets"])
@pytest.mark.parametrize(
    "pieces",
    [(HEAD, chunk(ROLE + HELLO)), (HEAD,), (), (HEAD, chunk(ROLE)[:30])],
    ids=["mid-stream", "silent-after-head", "before-headers", "inside-an-event"],
)
async def test_leaving_closes_the_backend_connection(pieces: tuple[bytes, ...], leave: object) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script(pieces, End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            exchange = await backend.exchange(0)
            await exchange.played.wait()
            assert callable(leave)
            leave(client)
            await _seen_by_backend(backend)
        await _returned_to_rest(worker)


async def test_leaving_a_request_that_is_no_stream_closes_the_backend_connection() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post({"model": "tiny", "messages": []})
            await backend.exchange(0)
            client.close()
            await _seen_by_backend(backend)
        await _returned_to_rest(worker)


async def test_leaving_while_the_body_is_still_coming_reaches_no_backend() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            await client.send(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
                b'Content-Length: 1000\r\n\r\n{"model":'
            )
            client.reset()
        await _returned_to_rest(worker)
        assert backend.exchanges == []


async def test_a_client_that_half_closes_counts_as_gone() -> None:
    """As with nginx's default: a client that can no longer be asked is not served for nobody."""
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((HEAD, chunk(ROLE)), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            await client.until(ROLE)
            client.writer.write_eof()
            await _seen_by_backend(backend)
        await _returned_to_rest(worker)


async def test_a_client_that_never_reads_is_held_back_in_bounded_memory_and_given_up() -> None:
    policy = WorkerPolicy(timers=TimerPolicy(client_write_s=0.2))
    flood = chunk(b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 60_000 + b'"}}]}\n\n')
    async with ScriptedBackend() as backend, running_worker(client_buffer_bytes=32 * 1024) as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        backend.add(Script((HEAD, *([flood] * 2000)), End.HANG))
        async with raw_client(worker.port) as client:
            client.writer.transport.pause_reading()
            await client.post(REQUEST)
            await _seen_by_backend(backend)
            exchange = await backend.exchange(0)
        assert exchange.blocked.is_set()
        assert exchange.sent_bytes < 40_000_000, "the backend was stopped long before its 120 MB were out"
        record = await worker.record()
        assert (record.outcome, record.ending) == (Outcome.CLIENT_GONE, Ending.CLIENT_STALLED)
        assert record.blocked_s > 0


async def test_a_slow_reader_gets_every_byte() -> None:
    events = [
        b'data: {"choices":[{"index":0,"delta":{"content":"%05d' % n + b"x" * 20_000 + b'"}}]}\n\n' for n in range(2000)
    ]
    stop = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    async with ScriptedBackend() as backend, running_worker(client_buffer_bytes=32 * 1024) as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((HEAD, *map(chunk, events), chunk(stop) + b"0\r\n\r\n")))
        async with raw_client(worker.port) as client:
            client.writer.transport.pause_reading()
            await client.post(REQUEST)
            exchange = await backend.exchange(0)
            async with asyncio.timeout(LEAVE_S):
                await exchange.blocked.wait()
            client.writer.transport.resume_reading()
            seen = await client.answer()
        assert seen.body == b"".join(events) + stop
        record = await worker.record()
        assert record.outcome is Outcome.OK
        assert record.blocked_s > 0
        assert record.summary is not None
        assert Flag.CLIENT_BLOCKED in record.summary.flags, "the pace of this stream is the client's"


async def test_a_client_that_leaves_after_the_end_marker_had_everything() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        stop = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        backend.add(Script((HEAD, chunk(ROLE), chunk(stop)), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            await client.until(b"[DONE]")
            client.close()
            await _seen_by_backend(backend)
        assert (await worker.record()).outcome is Outcome.OK


async def test_in_flight_limit_is_given_back_by_clients_that_leave() -> None:
    policy = WorkerPolicy(limits=LimitPolicy(in_flight=1))
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        backend.add(Script((), End.HANG), Script((answer(b"{}"),)))
        async with raw_client(worker.port) as first, raw_client(worker.port) as second:
            await first.post(REQUEST)
            await backend.exchange(0)
            await second.post({"model": "tiny"})
            refused = await second.answer()
            assert (refused.status, refused.error["code"]) == (429, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
            first.close()
            await worker.record(1)
            await second.post({"model": "tiny"})
            assert (await second.answer()).status == 200


async def test_pipelined_answers_to_a_client_that_never_reads_do_not_pile_up() -> None:
    policy = WorkerPolicy(timers=TimerPolicy(client_write_s=0.2))
    big = Script((answer(b'{"x":"' + b"x" * 200_000 + b'"}'),))
    async with ScriptedBackend() as backend, running_worker(client_buffer_bytes=32 * 1024) as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        backend.add(*[big] * 500)
        body = b'{"model":"tiny"}'
        one = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        ) + body
        async with raw_client(worker.port) as client:
            client.writer.transport.pause_reading()
            client.writer.write(one * 500)
            async with asyncio.timeout(LEAVE_S):
                while worker.server.connections:  # noqa: ASYNC110  (aiohttp tells nobody)
                    await asyncio.sleep(0.01)
        assert len(backend.exchanges) < 100, "answering stopped when the client took nothing"
        assert all(record.blocked_s < LEAVE_S for record in worker.records)


async def test_a_connection_to_be_closed_is_not_kept_for_a_client_that_does_not_read() -> None:
    policy = WorkerPolicy(timers=TimerPolicy(client_write_s=0.2))
    async with ScriptedBackend() as backend, running_worker(client_buffer_bytes=64 * 1024 * 1024) as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        backend.add(Script((answer(b'{"x":"' + b"x" * 20_000_000 + b'"}'),)))
        async with raw_client(worker.port) as client:
            client.writer.transport.pause_reading()
            await client.post({"model": "tiny"}, headers={"Connection": "close"})
            async with asyncio.timeout(LEAVE_S):
                while not worker.records or worker.server.connections:  # noqa: ASYNC110  (aiohttp tells nobody)
                    await asyncio.sleep(0.01)
