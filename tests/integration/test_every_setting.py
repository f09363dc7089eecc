"""Every setting changes something: two values of each, and what is seen of them.

The smallest scenario that shows the effect; what a setting is for in full has tests of its own.  A setting that needs
whole processes, a disk or a certificate stands in ``settings_elsewhere.py`` with the file that shows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gateway import aio
from gateway.app.control import _store_policy
from gateway.control.summary import summary_of
from gateway.core.link.messages import Pulse
from gateway.core.stream.summary import Ending, Flag
from gateway.fleet import Fleet
from gateway.ports import WorkerReport
from tests.fakes.backend import End, Script, answer
from tests.fakes.client import RawClient, raw_client
from tests.fakes.control_bench import running_control
from tests.fakes.fleets import GOOD, SLOW
from tests.fakes.setting_stage import Stage
from tests.integration import routing_scenes
from tests.integration.test_relay_endings import DONE, HEAD, HELLO, REQUEST, ROLE, STOP, chunk, event

pytestmark = pytest.mark.asyncio

Scene = Callable[[Stage], Awaitable[object]]

ASK = {"model": "tiny", "messages": []}
HEALTH = b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n"
WHOLE = Script((HEAD, chunk(ROLE + HELLO + STOP + DONE) + b"0\r\n\r\n"))


@dataclass(frozen=True, slots=True)
class Case:
    """``seen`` maps two values of the setting to what the scene sees; ``also`` are settings that go with them."""

    scene: Scene
    seen: Mapping[Any, object]
    also: Mapping[str, Any] = field(default_factory=dict)


async def tried(path: str, case: Case, folder: Path) -> None:
    """Play the scene with each value."""
    found = {}
    for number, value in enumerate(case.seen):
        below = folder / str(number)
        below.mkdir()
        found[value] = await case.scene(Stage(below, {**case.also, path: value}))
    assert found == dict(case.seen)
    assert len(set(map(str, found.values()))) == len(found), "a setting that changes nothing"


# --- scenes in fake time: what is seen is when something ends -----------------------------------------------------


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _end_of_silence(stage: Stage, *pieces: bytes, pulses_s: float = 0.0) -> object:
    """How and when a request ends whose backend says nothing more; its engine makes tokens for ``pulses_s``."""
    async with stage.flow() as (backend, worker):
        backend.add(Script(pieces, End.HANG))
        async with raw_client(worker.port) as client, asyncio.TaskGroup() as group:
            await client.post(REQUEST)
            await backend.exchange(0)
            begun = _now()

            async def live() -> None:
                while _now() - begun <= pulses_s:
                    worker.desk.apply(Pulse(backend="a", generation_tokens=_now(), read_at=_now()))
                    await asyncio.sleep(2)

            living = group.create_task(live())
            await client.answer(timeout_s=10_000)
            living.cancel()
        record = await worker.record()
        return record.ending, round(record.total_s)


async def _before_an_event(stage: Stage) -> object:
    return await _end_of_silence(stage, HEAD)


async def _after_an_event(stage: Stage) -> object:
    return await _end_of_silence(stage, HEAD, chunk(ROLE))


async def _alive_for_ever(stage: Stage) -> object:
    return await _end_of_silence(stage, HEAD, chunk(ROLE), pulses_s=1000)


async def _alive_for_ten_seconds(stage: Stage) -> object:
    return await _end_of_silence(stage, HEAD, chunk(ROLE), pulses_s=10)


async def _comments_in(stage: Stage, *pieces: bytes) -> int:
    """How many comments a client gets of a backend that says nothing more for two minutes."""
    async with stage.flow() as (backend, worker):
        backend.add(Script(pieces, End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            return (await client.answer(timeout_s=10_000)).body.count(b": keep-alive\n\n")


async def _comments_before_an_event(stage: Stage) -> object:
    return await _comments_in(stage, HEAD)


async def _comments_after_an_event(stage: Stage) -> object:
    return await _comments_in(stage, HEAD, chunk(ROLE))


async def _preflight(stage: Stage, header: str) -> object:
    async with stage.flow() as (_, worker), raw_client(worker.port) as client:
        await client.send(
            b"OPTIONS /v1/models HTTP/1.1\r\nHost: g\r\nOrigin: https://a\r\nAccess-Control-Request-Method: GET\r\n\r\n"
        )
        return (await client.answer()).headers.get(header)


async def _kept_connections(stage: Stage) -> object:
    """How many connections two requests take that are 4 s apart."""
    async with stage.flow() as (backend, worker):
        backend.add(WHOLE, WHOLE)
        async with raw_client(worker.port) as client:
            for _ in range(2):
                await client.post(REQUEST)
                assert (await client.answer()).whole
                await asyncio.sleep(4)
        return backend.accepted


async def _end_of_patience(stage: Stage) -> object:
    """When a client that takes nothing is given up."""
    flood = chunk(event(f'"content":"{"x" * 60_000}"'))
    async with stage.flow() as (backend, worker):
        backend.add(Script((HEAD, *[flood] * 400), End.HANG))
        async with raw_client(worker.port) as client:
            client.writer.transport.pause_reading()
            await client.post(REQUEST)
            record = await worker.record(timeout_s=10_000)
        return record.ending, round(record.total_s)


async def _end_of_a_slow_body(stage: Stage) -> object:
    async with stage.flow() as (_, worker):
        begun = _now()
        async with raw_client(worker.port) as client:
            await client.send(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            seen = await client.answer(timeout_s=10_000)
        return seen.status, round(_now() - begun)


async def _closed_after(client: RawClient) -> int:
    begun = _now()
    with contextlib.suppress(ConnectionError):
        await client.at_end(timeout_s=10_000)
    return round(_now() - begun)


async def _end_of_a_slow_head(stage: Stage) -> object:
    async with stage.whole_worker() as (_, port), raw_client(port) as client:
        await client.send(HEALTH[:-10])
        return await _closed_after(client)


async def _end_of_idleness(stage: Stage) -> object:
    async with stage.whole_worker() as (_, port), raw_client(port) as client:
        await client.send(HEALTH)
        assert (await client.answer()).status == 200
        return await _closed_after(client)


IN_FAKE_TIME: Mapping[str, Case] = MappingProxyType(
    {
        "timers.first_event_s": Case(
            _before_an_event, {5: (Ending.FIRST_EVENT_TIMEOUT, 5), 9: (Ending.FIRST_EVENT_TIMEOUT, 9)}
        ),
        "timers.stall_s": Case(_after_an_event, {7: (Ending.STALL_TIMEOUT, 7), 11: (Ending.STALL_TIMEOUT, 11)}),
        "timers.silent_max_s": Case(
            _alive_for_ever,
            {20: (Ending.STALL_TIMEOUT, 20), 30: (Ending.STALL_TIMEOUT, 30)},
            also={"timers.stall_s": 10},
        ),
        "timers.pulse_fresh_s": Case(
            _alive_for_ten_seconds,
            {6: (Ending.STALL_TIMEOUT, 16), 20: (Ending.STALL_TIMEOUT, 30)},
            also={"timers.stall_s": 10},
        ),
        "timers.total_s": Case(_after_an_event, {5: (Ending.TOTAL_TIMEOUT, 5), 0: (Ending.STALL_TIMEOUT, 120)}),
        "cors.origins": Case(
            partial(_preflight, header="access-control-allow-origin"),
            {("https://a", "https://b"): "https://a", ("*",): "*", (): None},
        ),
        "cors.max_age_s": Case(
            partial(_preflight, header="access-control-max-age"), {600: "600", 5: "5"}, also={"cors.origins": ("*",)}
        ),
        "comments.first_s": Case(
            _comments_before_an_event,
            {50: 1, 0: 0},
            also={"timers.first_event_s": 70, "comments.untouched": True, "comments.every_s": 0},
        ),
        "comments.every_s": Case(_comments_after_an_event, {50: 2, 0: 0}, also={"comments.untouched": True}),
        "comments.untouched": Case(_comments_after_an_event, {True: 7, False: 0}),
        "timers.upstream_idle_s": Case(_kept_connections, {3: 2, 5: 1}),
        "timers.client_write_s": Case(_end_of_patience, {5: (Ending.CLIENT_STALLED, 5), 9: (Ending.CLIENT_STALLED, 9)}),
        "limits.body_s": Case(_end_of_a_slow_body, {5: (408, 5), 9: (408, 9)}),
        "clients.head_s": Case(_end_of_a_slow_head, {5: 5, 9: 9}),
        "clients.idle_s": Case(_end_of_idleness, {5: 5, 9: 9}),
    }
)


@pytest.mark.looptime
@pytest.mark.parametrize("path", IN_FAKE_TIME)
async def test_a_wait_ends_when_its_setting_says(path: str, tmp_path: Path) -> None:
    await tried(path, IN_FAKE_TIME[path], tmp_path)


# --- scenes in real time, on the loop that serves -----------------------------------------------------------------


async def _backend_that_never_says_hello(stage: Stage) -> object:
    """What a client is told of a TLS backend that accepts and is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        async with stage.flow() as (_, worker), raw_client(worker.port) as client:
            worker.serve(stage.snapshot(url).backends, policy=stage.snapshot(url).policy)
            await client.post(ASK)
            message: str = (await client.answer()).error["message"]
            return message


async def _large_body(stage: Stage) -> object:
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(WHOLE)
        await client.post({**REQUEST, "user": "x" * 3000})
        return (await client.answer()).status


async def _second_of_two_bodies(stage: Stage) -> object:
    async with stage.flow() as (backend, worker):
        backend.add(WHOLE)
        async with raw_client(worker.port) as first, raw_client(worker.port) as second:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
            await first.send(head + b"Content-Length: 700000\r\n\r\n" + b"{" * 600_000)
            await worker.until(lambda: worker.desk.intake.held_bytes > 500_000)
            await second.post({**REQUEST, "user": "x" * 600_000})
            return (await second.answer()).status


async def _second_request(stage: Stage) -> object:
    async with stage.flow() as (backend, worker):
        backend.add(Script((), End.HANG), WHOLE)
        async with raw_client(worker.port) as first, raw_client(worker.port) as second:
            await first.post(REQUEST)
            await backend.exchange(0)
            await second.post(REQUEST)
            return (await second.answer()).status


async def _large_event(stage: Stage) -> object:
    """How a stream with an event of 6 kB ends, that comes in two reads, and whether the event was read."""
    large = chunk(event(f'"content":"{"x" * 6000}"'))
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(Script((HEAD, chunk(ROLE), large[:5000], large[5000:], chunk(STOP + DONE) + b"0\r\n\r\n")))
        await client.post(REQUEST)
        await client.answer()
        record = await worker.record()
        assert record.summary is not None
        return record.ending, Flag.OVERSIZE_EVENTS in record.summary.flags


async def _answer_that_breaks_off(stage: Stage) -> object:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 20000\r\n\r\n"
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(Script((head + b"x" * 5000,), End.CLOSE))
        await client.post(ASK)
        seen = await client.answer()
        return seen.status, seen.whole


async def _tokens_of_a_long_answer(stage: Stage) -> object:
    usage = b'"usage":{"prompt_tokens":1,"completion_tokens":7,"total_tokens":8}}'
    choice = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"' + b"x" * 5000 + b'"}}],'
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(Script((answer(choice + usage),)))
        await client.post(ASK)
        assert (await client.answer()).whole
        record = await worker.record()
        return record.summary.completion_tokens if record.summary is not None else None


async def _flood_for_a_slow_client(stage: Stage) -> object:
    """Whether a backend gets rid of 24 MB while the client takes nothing."""
    flood = chunk(event(f'"content":"{"x" * 60_000}"'))
    async with stage.whole_worker() as (backend, port), raw_client(port) as client:
        backend.add(Script((HEAD, *[flood] * 400), End.HANG))
        client.writer.transport.pause_reading()
        await client.post(REQUEST)
        exchange = await backend.exchange(0)
        waits = [aio.spawn(it.wait(), name="wait") for it in (exchange.played, exchange.blocked)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return exchange.played.is_set()


async def _second_connection(stage: Stage) -> object:
    async with stage.whole_worker() as (_, port), raw_client(port) as first, raw_client(port) as second:
        for client in (first, second):
            await client.send(HEALTH)
        await first.answer()
        return (await second.answer()).status


async def _backend_header(stage: Stage) -> object:
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(WHOLE)
        await client.post(REQUEST)
        return (await client.answer()).headers.get("x-gateway-backend")


async def _recorded_pool(stage: Stage) -> object:
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(WHOLE)
        await client.post(REQUEST)
        await client.answer()
        return (await worker.record()).pool


async def _status(stage: Stage) -> object:
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(WHOLE)
        await client.post(REQUEST)
        return (await client.answer()).status


async def _key_upstream(stage: Stage) -> object:
    async with stage.flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(WHOLE)
        await client.post(REQUEST)
        await client.answer()
        return (await backend.exchange(0)).request.headers.get("authorization")


async def _sentence(stage: Stage) -> object:
    """What the status says of a pool of one backend that serves and one that does not."""
    runtime = stage.settings("http://127.0.0.1:8001", "http://127.0.0.1:8002").runtime
    fleet = Fleet(runtime, generation=0, now=0.0)
    fleet.notice("a", GOOD, now=1.0)
    worker = WorkerReport(
        slot=0, pid=1, started_wall=0.0, generation=1, in_flight=0, connections=0, dropped=0, fresh=True
    )
    return summary_of(fleet.pools(), [worker], in_flight=0, store_problem="")


def _fleet_of_one(stage: Stage) -> Fleet:
    fleet = Fleet(stage.settings().runtime, generation=0, now=0.0)
    fleet.notice("a", GOOD, now=0.5)
    return fleet


async def _period_of_probes(stage: Stage) -> object:
    return _fleet_of_one(stage).probe_period_s("a")


async def _bad_probes_to_the_end(stage: Stage) -> object:
    fleet, count = _fleet_of_one(stage), 0
    while fleet.state("a") == "serving":
        count += 1
        fleet.notice("a", SLOW, now=count)
    return count


async def _good_probes_to_return(stage: Stage) -> object:
    fleet, count = _fleet_of_one(stage), 0
    for now in range(1, 10):
        fleet.notice("a", SLOW, now=now)
    while fleet.state("a") != "serving":
        count += 1
        fleet.notice("a", GOOD, now=10 + count)
    return count


async def _workers(stage: Stage) -> object:
    return stage.installed().workers


async def _place_of_the_token(stage: Stage) -> object:
    async with running_control(stage.installed()):
        (path,) = Path.cwd().glob("*/admin.token")
    path.unlink()
    return path.parent.name


async def _place_of_the_history(stage: Stage) -> object:
    async with running_control(stage.installed()):
        (path,) = Path.cwd().glob("*.db")
    path.unlink()
    return path.name


async def _bounds_of_the_history(stage: Stage) -> object:
    policy = _store_policy(stage.installed())
    return policy.keep_days, policy.keep_bytes


IN_REAL_TIME: Mapping[str, Case] = MappingProxyType(
    {
        "timers.connect_s": Case(
            _backend_that_never_says_hello,
            {0.2: "no connection to the backend within 0.2 s", 0.3: "no connection to the backend within 0.3 s"},
        ),
        "limits.body_bytes": Case(_large_body, {"1 KiB": 413, "8 KiB": 200}),
        "limits.receiving_bytes": Case(
            _second_of_two_bodies, {"1 MiB": 503, "8 MiB": 200}, also={"limits.body_bytes": 1024**2}
        ),
        "limits.in_flight": Case(_second_request, {1: 429, 2: 200}),
        "limits.hold_bytes": Case(
            _large_event,
            {"2 KiB": (Ending.OVERSIZE, False), "8 KiB": (Ending.COMPLETE, True)},
            also={"limits.event_bytes": 1024},
        ),
        "limits.event_bytes": Case(_large_event, {"2 KiB": (Ending.COMPLETE, True), "8 KiB": (Ending.COMPLETE, False)}),
        "limits.answer_hold_bytes": Case(_answer_that_breaks_off, {"2 KiB": (200, False), "8 KiB": (502, True)}),
        "limits.answer_tap_bytes": Case(
            _tokens_of_a_long_answer, {"2 KiB": None, "8 KiB": 7}, also={"limits.answer_hold_bytes": 1024}
        ),
        "limits.client_buffer_bytes": Case(_flood_for_a_slow_client, {"64 KiB": False, "64 MiB": True}),
        "headers.backend_name": Case(_backend_header, {True: "a", False: None}),
        "pools[].name": Case(_recorded_pool, {"one": "one", "other": "other"}),
        "pools[].models": Case(_status, {("tiny",): 200, ("large",): 404}),
        "pools[].min_available": Case(
            _sentence,
            {
                1: "serving with 1 of 2 backends, 0 requests in flight",
                2: "short: fewer backends than wanted serve pool main",
            },
        ),
        "pools[].backends[].name": Case(_backend_header, {"one": "one", "other": "other"}),
        "pools[].backends[].api_key_env": Case(_key_upstream, {"ENGINE_KEY": "Bearer engine-secret", "": None}),
        **{path: Case(*row) for path, row in routing_scenes.ROWS.items()},
        "probes.health_s": Case(_period_of_probes, {3: 3.0, 4: 4.0}),
        "probes.fall": Case(_bad_probes_to_the_end, {2: 2, 4: 4}),
        "probes.rise": Case(_good_probes_to_return, {1: 1, 3: 3}),
        "clients.connections": Case(_second_connection, {1: 429, 2: 200}),
        "workers": Case(_workers, {251: 251, "auto": len(os.sched_getaffinity(0))}),
        "runtime_dir": Case(_place_of_the_token, {"one": "one", "other": "other"}),
        "store.path": Case(_place_of_the_history, {"one.db": "one.db", "other.db": "other.db"}),
        "store.keep_days": Case(_bounds_of_the_history, {2: (2.0, 1024**3), 3: (3.0, 1024**3)}),
        "store.keep_bytes": Case(_bounds_of_the_history, {"2 MiB": (30.0, 2 << 20), "3 MiB": (30.0, 3 << 20)}),
    }
)


@pytest.mark.parametrize("path", IN_REAL_TIME)
async def test_a_setting_changes_what_is_seen(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "engine-secret")
    monkeypatch.chdir(tmp_path)  # from which relative paths count
    await tried(path, IN_REAL_TIME[path], tmp_path)


IN_THE_LOG: Mapping[str, Mapping[str, tuple[bool, bool]]] = MappingProxyType(
    {
        "log.level": {"info": (True, True), "error": (False, True)},
        "log.format": {"json": (True, True), "console": (True, False)},
    }
)
"""Whether an event of the level info stands there, and whether the lines are JSON."""


@pytest.mark.parametrize("path", IN_THE_LOG)
async def test_a_setting_changes_the_log(path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def scene(stage: Stage) -> object:
        async with running_control(stage.installed()):
            pass
        lines = capfd.readouterr().err.splitlines()
        return any("control.started" in line for line in lines), all(line.startswith("{") for line in lines)

    await tried(path, Case(scene, IN_THE_LOG[path]), tmp_path)
