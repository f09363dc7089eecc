"""The whole gateway under load while it is asked to stop, politely or not, and when its supervisor is killed."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tests.fakes.gateway_load import Asked, Load, ask
from tests.fakes.gateway_process import GatewayProcess, connection, gateway, get
from tests.fakes.paced_engine import DONE, answered_once, engines, events, request

pytestmark = pytest.mark.asyncio

LONG = 400  # tokens; at the engine's pace no test waits for the end of such a stream
AT_ONCE_S = 8.0
GONE_S = 5.0  # two seconds by contract, on a machine that has nothing else to do


def asked_now(request_id: str, *, stream: bool, tokens: int) -> Asked:
    return Asked(request_id, stream=stream, tokens=tokens, began=asyncio.get_running_loop().time())


def ended_readably(asked: Asked) -> bool:
    """Whether the answer is a beginning of the right one, then one error event, then the end marker."""
    body = asked.answer.body
    *begin, _error, _done = asked.answer.events
    expected = b"".join(events(asked.request_id, asked.tokens))
    whole = asked.answer.whole and body.endswith(DONE) and body.count(DONE) == 1
    return whole and asked.code == "shutting_down" and expected.startswith(b"".join(begin))


def settled(running: GatewayProcess) -> dict[str, str]:
    """Outcome of each request in the log; each has one line."""
    lines = [(event["request_id"], event["outcome"]) for event in running.events("request.settled")]
    assert len(lines) == len(dict(lines))
    return dict(lines)


async def test_a_stop_under_load_finishes_what_is_open_and_refuses_the_rest(tmp_path: Path) -> None:
    async with (
        engines(1) as (a,),
        gateway(tmp_path, {"a": a.backend.url}, workers=2) as running,
        connection(running.clients) as kept,
    ):
        await kept.send(b"GET /ready HTTP/1.1\r\nHost: g\r\n\r\n")
        assert (await kept.answer()).status == 200
        async with Load(running.clients, streams=8, shorts=3) as load:
            await load.streaming(8)
            on_the_way = list(load.open_streams)
            running.signal(signal.SIGTERM)
            await load.until(lambda: any(asked.failure == "refused" for asked in load.asked))
            assert await kept.at_end()
            await load.finish()
        with pytest.raises(ConnectionRefusedError):
            await get(running.clients, "/ready")
        assert await running.exit() == 0
        assert running.left() == []
        assert all(asked.served for asked in on_the_way)
        assert {asked.failure or asked.code for asked in load.unserved} <= {"refused", "shutting_down"}, load.unserved
        served = {asked.request_id for asked in load.asked if asked.served}
        assert {request_id for request_id, outcome in settled(running).items() if outcome == "ok"} == served
        assert answered_once(a)


async def test_a_connection_made_before_a_stop_still_has_its_first_request_served(tmp_path: Path) -> None:
    async with AsyncExitStack() as held:
        (a,) = await held.enter_async_context(engines(1))
        running = await held.enter_async_context(gateway(tmp_path, {"a": a.backend.url}))
        streaming, silent, *fresh = [await held.enter_async_context(connection(running.clients)) for _ in range(5)]
        await streaming.post(request("stream", stream=True, tokens=40))
        await running.until(lambda: has_connections(running, 5), "the worker has accepted them")
        running.signal(signal.SIGTERM)
        await running.until(lambda: refused(running), "connections are refused")
        for at, client in enumerate(fresh):
            await client.post(request(f"fresh-{at}", stream=at > 0, tokens=2))
        answers = [await client.answer() for client in fresh]
        assert [answer.status for answer in answers] == [200, 200, 200]
        assert [answer.body for answer in answers[1:]] == [b"".join(events(f"fresh-{at}", 2)) for at in (1, 2)]
        await streaming.send(b"GET /ready HTTP/1.1\r\nHost: g\r\n\r\n")  # too late: the connection ends with the stream
        assert (await streaming.answer()).body == b"".join(events("stream", 40))
        assert all([await client.at_end() for client in (streaming, silent, *fresh)])
        assert await running.exit() == 0


async def has_connections(running: GatewayProcess, count: int) -> bool:
    return await running.total("pacekeeper_worker_connections") >= count


async def refused(running: GatewayProcess) -> bool:
    try:
        await get(running.clients, "/ready")
    except ConnectionRefusedError:
        return True
    return False


async def test_at_the_deadline_what_is_left_ends_readably_and_is_recorded(tmp_path: Path) -> None:
    clients = {"drain_s": 0.5}
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}, clients=clients, workers=2) as running:
        streams = [asked_now(f"long-{at}", stream=True, tokens=LONG) for at in range(6)]
        async with asyncio.TaskGroup() as asking:
            for asked in streams:
                asking.create_task(ask(running.clients, asked))
            upload = asking.create_task(uploading(running, begun := asyncio.Event()))
            await running.until(lambda: all(asked.head_at for asked in streams), "every stream has begun")
            await begun.wait()
            began = asyncio.get_running_loop().time()
            running.signal(signal.SIGINT)  # what a terminal sends; the same as SIGTERM
        assert await running.exit() == 0
        took_s = asyncio.get_running_loop().time() - began
        print(f"ended {took_s:.2f} s after the signal, with a deadline of 0.5 s")  # noqa: T201
        assert took_s < 0.5 + AT_ONCE_S
        assert all(ended_readably(asked) for asked in streams), streams
        assert upload.result() in {b"", b"HTTP/1.1 503"}
        outcomes = settled(running)
        assert outcomes.keys() >= {asked.request_id for asked in streams}, running.told_since(0)
        assert {outcomes.pop(asked.request_id) for asked in streams} == {"shutdown"}
        assert outcomes == {"upload": "shutdown"}
        assert running.left() == []


async def uploading(running: GatewayProcess, begun: asyncio.Event) -> bytes:
    """Begin a request whose body never comes whole; the first bytes of what is said about that."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
    async with connection(running.clients) as client:
        await client.send(head + b"X-Request-Id: upload\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        begun.set()
        await client.send(b"{")
        with suppress(ConnectionResetError):
            return (await client.reader.read(1000))[:12]
    return b""


async def test_a_second_signal_waits_for_nobody(tmp_path: Path) -> None:
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}) as running:
        streams = [asked_now(f"long-{at}", stream=True, tokens=LONG) for at in range(4)]
        async with asyncio.TaskGroup() as asking:
            for asked in streams:
                asking.create_task(ask(running.clients, asked))
            asking.create_task(uploading(running, begun := asyncio.Event()))
            await running.until(lambda: all(asked.head_at for asked in streams), "every stream has begun")
            await begun.wait()
            after = running.now
            running.signal(signal.SIGINT)
            await running.event("supervisor.announced", after=after, notice="stopping")
            began = asyncio.get_running_loop().time()
            running.signal(signal.SIGTERM)
        assert await running.exit() == 0
        took_s = asyncio.get_running_loop().time() - began
        print(f"ended {took_s:.2f} s after the second signal")  # noqa: T201
        assert took_s < AT_ONCE_S
        assert all(ended_readably(asked) for asked in streams), streams
        assert settled(running) == dict.fromkeys([*(asked.request_id for asked in streams), "upload"], "shutdown")
        assert running.left() == []


async def test_a_killed_supervisor_takes_everything_with_it(tmp_path: Path) -> None:
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}, workers=2) as running:
        assert set(running.children()) == {"control", "worker 0", "worker 1"}
        async with Load(running.clients, streams=8) as load:
            await load.streaming(8)
            killed_at = asyncio.get_running_loop().time()
            running.signal(signal.SIGKILL)
            await running.until(lambda: not running.left(), "the children end", within_s=10.0)
            took_s = asyncio.get_running_loop().time() - killed_at
            await load.finish()
        print(f"no process was left {took_s:.2f} s after the supervisor was killed")  # noqa: T201
        assert took_s < GONE_S
        assert await running.exit() == -signal.SIGKILL
        with pytest.raises(ConnectionRefusedError):
            await get(running.clients, "/health")


async def test_a_gateway_starts_again_where_one_was_killed(tmp_path: Path) -> None:
    async with engines(1) as (a,):
        async with gateway(tmp_path, {"a": a.backend.url}, unix=True) as killed:
            killed.signal(signal.SIGKILL)
            await killed.exit()
        async with gateway(tmp_path, {"a": a.backend.url}, unix=True) as running:
            asked = await ask(running.clients, asked_now("again", stream=True, tokens=2))
            assert asked.served, asked


async def test_a_stop_is_told_to_operators_while_it_lasts(tmp_path: Path) -> None:
    clients = {"drain_s": 300}
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}, clients=clients, workers=2) as running:
        before = await running.admin("/admin/v1/status")
        assert before["summary"].startswith("all well")
        assert before["stop_left_s"] is None
        streams = [asked_now(f"long-{at}", stream=True, tokens=LONG * 100) for at in range(2)]
        async with asyncio.TaskGroup() as asking:
            for asked in streams:
                asking.create_task(ask(running.clients, asked))
            await running.until(lambda: all(asked.head_at for asked in streams), "every stream has begun")
            running.signal(signal.SIGTERM)
            await running.until(lambda: tells_of_the_stop(running, "2 requests in flight, cut off in"), "it is told")
            status = await running.admin("/admin/v1/status")
            assert 0 < status["stop_left_s"] <= 300
            assert await running.total("pacekeeper_stopping") == 1
            running.signal(signal.SIGTERM)
        assert await running.exit() == 0
        assert all(ended_readably(asked) for asked in streams), streams


async def tells_of_the_stop(running: GatewayProcess, words: str) -> bool:
    summary: str = (await running.admin("/admin/v1/status"))["summary"]
    return summary.startswith("stopping: ") and words in summary
