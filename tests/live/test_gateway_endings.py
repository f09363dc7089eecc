"""What becomes of real streams when parts of the gateway itself end: control, a worker, all of it."""

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.rig import wire
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import kill, until
from tests.live.rig.ways import GatewayMaker

CROWD = 6


@pytest.fixture(scope="module")
def double(start_gateway: GatewayMaker, engine_a: Engine) -> Gateway:
    """A gateway of two workers."""
    gateway = start_gateway("double", [engine_a], {"workers": 2})
    until(lambda: len(workers(gateway)) == 2, "two workers", within_s=10)
    return gateway


def workers(gateway: Gateway) -> dict[int, dict]:
    """What control knows of the workers that are alive, by process id."""
    return {worker["pid"]: worker for worker in gateway.admin("/admin/v1/status")["workers"] if worker["fresh"]}


def in_flight(gateway: Gateway) -> int:
    """The open requests by the workers' own heartbeats, which come twice a second."""
    return sum(worker["in_flight"] for worker in workers(gateway).values())


def child(gateway: Gateway, module: str) -> int:
    """The process id of the one child that runs this module."""
    (found,) = [
        pid for pid in gateway.process.members() if module in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    ]
    return found


@dataclass(frozen=True, slots=True)
class Stream:
    """How a stream ended: whole, or cut by its connection's end; and how many events came."""

    whole: bool
    events: int


def read_stream(port: int, under_way: threading.Semaphore) -> Stream:
    count = 0
    last = ""
    try:
        with wire.Call(port, wire.CHAT, wire.endless(stream=True)) as call:
            for event in call.events():
                count += 1
                last = event.data
                if count == 5:
                    under_way.release()
    except (wire.Cut, ConnectionError):
        return Stream(whole=False, events=count)
    return Stream(whole=last == wire.DONE, events=count)


@contextmanager
def crowd(gateway: Gateway) -> Iterator[list[Future[Stream]]]:
    """Long streams in full flow through a gateway; read to their ends on the way out."""
    under_way = threading.Semaphore(0)
    with ThreadPoolExecutor(CROWD) as pool:
        streams = [pool.submit(read_stream, gateway.port, under_way) for _ in range(CROWD)]
        for _ in range(CROWD):
            assert under_way.acquire(timeout=20)
        yield streams


def answers_a_chat(gateway: Gateway) -> bool:
    with wire.Call(gateway.port, wire.CHAT, wire.chat(max_tokens=4)) as call:
        call.read()
        return call.status == 200


def test_control_killed_under_load_cuts_no_stream_and_refuses_no_request(double: Gateway, idle: Engine, note_figure):
    fleet = double.admin("/admin/v1/backends")["items"]
    first = child(double, "gateway.app.control_main")
    with crowd(double) as streams:
        kill([first], signal.SIGKILL)
        killed_at_s = time.perf_counter()
        served = [answers_a_chat(double) for _ in range(10)]
        until(lambda: wire.answers(double.operators_port, "/metrics"), "control back", within_s=10)
        back_s = time.perf_counter() - killed_at_s
        until(lambda: len(workers(double)) == 2, "both workers known to the new control", within_s=5)
        again = double.admin("/admin/v1/backends")["items"]

    assert child(double, "gateway.app.control_main") != first
    assert served == [True] * 10
    assert [stream.result() for stream in streams if not stream.result().whole] == []
    assert [(b["name"], b["url"], b["state"]) for b in again] == [(b["name"], b["url"], b["state"]) for b in fleet]
    note_figure(f"SIGKILL of control to its successor's answer: {back_s:.1f} s")


def test_a_killed_worker_ends_its_own_streams_and_its_slot_is_back(double: Gateway, idle: Engine, note_figure):
    until(lambda: in_flight(double) == 0, "heartbeats without requests", within_s=5)
    with crowd(double) as streams:
        until(lambda: in_flight(double) == CROWD, "heartbeats with all streams", within_s=5)
        before = workers(double)
        victim = max(before, key=lambda pid: before[pid]["in_flight"])
        kill([victim], signal.SIGKILL)
        killed_at_s = time.perf_counter()
        until(lambda: len(alive := set(workers(double)) - {victim}) == 2 and alive, "a worker in the slot", within_s=10)
        back_s = time.perf_counter() - killed_at_s
        served = [answers_a_chat(double) for _ in range(10)]

    cut = [stream.result() for stream in streams if not stream.result().whole]
    assert len(cut) == before[victim]["in_flight"] > 0
    assert served == [True] * 10
    until(lambda: idle.running() == 0, "the engine free of the dead worker's requests", within_s=3)
    note_figure(f"SIGKILL of a worker to its successor's heartbeat in control: {back_s:.1f} s")


def test_a_stopped_gateway_lets_its_streams_end_and_exits_with_0(
    start_gateway: GatewayMaker, idle: Engine, note_figure
):
    gateway = start_gateway("stopped", [idle])
    with crowd(gateway) as streams:
        gateway.process.send(signal.SIGTERM)
        until(lambda: not wire.answers(gateway.port, "/ready"), "no longer ready", within_s=3)

    assert [stream.result() for stream in streams if not stream.result().whole] == []
    stopped_s = time.perf_counter()
    assert gateway.process.wait(within_s=10) == 0
    note_figure(f"last stream done to the gateway's exit: {time.perf_counter() - stopped_s:.1f} s")


def test_a_second_sigterm_ends_streams_at_once_with_an_error_event(start_gateway: GatewayMaker, idle: Engine):
    gateway = start_gateway("hurried", [idle])
    with wire.Call(gateway.port, wire.CHAT, wire.endless(stream=True)) as call:
        events = call.events()
        next(events)
        gateway.process.send(signal.SIGTERM)
        until(lambda: not wire.answers(gateway.port, "/ready"), "no longer ready", within_s=3)
        gateway.process.send(signal.SIGTERM)
        asked_s = time.perf_counter()
        rest = list(events)

    assert rest[-1].data == wire.DONE
    assert "error" in rest[-2].json()
    assert rest[-1].at_s - asked_s < 2
    assert gateway.process.wait(within_s=10) == 0
    until(lambda: idle.running() == 0, "the engine free", within_s=3)
