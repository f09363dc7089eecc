"""What a worker does about its own tasks when they fail, and when it begins to accept; the rest is integration."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import aio
from gateway.app import worker as worker_module
from gateway.app.spec import InstallSpec
from gateway.app.worker import WorkerShell
from gateway.core.link.messages import Heartbeat, NewSnapshot, Shares, WorkerMessage
from gateway.core.routing.snapshot import Snapshot
from tests.fakes.link_ends import FarEnd, control_end

pytestmark = pytest.mark.asyncio

SNAPSHOT = NewSnapshot(snapshot=Snapshot(generation=1, pools=(), backends=()))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def spec_of(runtime_dir: str, *, workers: int = 1) -> InstallSpec:
    return InstallSpec(
        config_path="/c.yaml",
        runtime_dir=runtime_dir,
        store_path="/h.db",
        workers=workers,
        clients=(),
        operators=(),
    )


async def test_a_worker_whose_link_fails_by_a_defect_ends_with_1_so_that_it_is_replaced(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    shell = WorkerShell(spec_of("no path: \ud800"), 0, {0: [listener]})
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(20):
            assert await shell.run() == 1
    assert [(it.message, it.task) for it in caplog.records] == [("task.failed", "link")]


async def test_the_sweep_goes_on_after_a_defect(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "SWEEP_S", 0.001)
    monkeypatch.setattr(worker_module, "FIRST_SNAPSHOT_S", 0.001)
    shell = WorkerShell(spec_of(str(tmp_path)), 0, {0: [listener]})
    swept = asyncio.Event()
    times = 0

    def sweep(*, idle_s: float) -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise ValueError(idle_s)
        swept.set()

    monkeypatch.setattr(shell._upstreams, "sweep", sweep)
    running = aio.spawn(shell.run(), name="worker")
    async with asyncio.timeout(20):
        await swept.wait()
        shell.stop(0.1)
        assert await running == 0
    assert [it.task for it in caplog.records if it.message == "task.failed"] == ["sweep", "sweep"]


class Control:
    """Control's socket, and its end of the one connection that it gets."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[FarEnd[WorkerMessage]] = asyncio.Queue()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.put_nowait(control_end((reader, writer)))


async def test_beside_others_a_worker_accepts_when_it_has_a_share_and_confirms_it_at_once(
    listener: socket.socket, tmp_path: Path
) -> None:
    spec = spec_of(str(tmp_path), workers=2)
    control = Control()
    server = await asyncio.start_unix_server(control.accept, path=spec.link_path)
    shell = WorkerShell(spec, 0, {0: [listener]})
    ready = asyncio.Event()
    shell.ready = ready.set
    running = aio.spawn(shell.run(), name="worker")
    async with asyncio.timeout(20):
        end = await control.came.get()
        assert (await end.next_of(Heartbeat)).share == 0
        end.say(SNAPSHOT)
        end.say(Shares(in_flight_limit=0, others_in_flight={}))
        assert (await end.next_of(Heartbeat)).generation == 1
        assert not ready.is_set()
        end.say(Shares(in_flight_limit=3, others_in_flight={}))
        assert (await end.next_of(Heartbeat)).share == 3
        await ready.wait()
        shell.stop(0.1)
        assert await running == 0
    end.streams[1].transport.abort()
    server.close()
