"""The whole gateway as it is served, with its processes killed and stopped under streams from a scripted backend."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.client import RawClient, raw_client
from tests.fakes.logged_process import LoggedProcess, await_that, lives

pytestmark = pytest.mark.asyncio

COMMAND = Path(sys.executable).with_name("pacekeeper")
REQUEST = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
DONE = b"data: [DONE]\n\n"


def event(delta: str, finish: str = "null") -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{%b},"finish_reason":%b}]}\n\n' % (delta.encode(), finish.encode())


def chunked(*events: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in events)


BEGINNING = event('"role":"assistant","content":""') + event('"content":"hello"')
ENDING = event("", '"stop"') + DONE


def stream(gate: asyncio.Event) -> Script:
    """An answer that ends when the test lets it."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    return Script((head + chunked(BEGINNING), gate, chunked(ENDING) + b"0\r\n\r\n"))


class Gateway:
    """A served gateway; what blocks runs in threads, since the backend lives on this test's loop."""

    def __init__(self, process: LoggedProcess, port: int) -> None:
        self.process = process
        self.port = port

    async def event(self, event: str, **fields: str) -> None:
        await asyncio.to_thread(self.process.await_event, event, **fields)

    async def exit(self) -> int:
        return await asyncio.to_thread(self.process.await_exit)

    def kill(self, child: str) -> None:
        os.kill(self.process.pid_of(child), signal.SIGKILL)

    async def serves(self, backend: ScriptedBackend) -> None:
        """One whole request goes through."""
        gate = asyncio.Event()
        gate.set()
        backend.add(stream(gate))
        async with raw_client(self.port) as client:
            await client.post(REQUEST)
            seen = await client.answer()
        assert (seen.status, seen.whole, seen.body) == (200, True, BEGINNING + ENDING)

    def worker_of(self, client: RawClient) -> str:
        """Which worker holds the other end of a client's connection."""
        port = client.writer.get_extra_info("sockname")[1]
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ends = f":{self.port:04X}", f":{port:04X}"
        (inode,) = [row[9] for row in rows if (row[1][-5:], row[2][-5:]) == ends]
        for name in ("worker 0", "worker 1"):
            descriptors = Path(f"/proc/{self.process.pid_of(name)}/fd").iterdir()
            if any(str(descriptor.readlink()) == f"socket:[{inode}]" for descriptor in descriptors):
                return name
        raise AssertionError("no worker holds it")


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@asynccontextmanager
async def served(
    folder: Path, backend: ScriptedBackend, *, workers: int = 1, unix: Path | None = None
) -> AsyncIterator[Gateway]:
    port, operators = free_ports()
    (folder / "g.yaml").write_text(
        f'clients: {{listen: ["{f"unix:{unix}" if unix else f"127.0.0.1:{port}"}"]}}\n'
        f'operators: {{listen: ["127.0.0.1:{operators}"]}}\n'
        f"workers: {workers}\n"
        f'pools: [{{name: main, backends: [{{name: a, url: "{backend.url}"}}]}}]\n'
    )
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [COMMAND, "serve", "--config", "g.yaml"], cwd=folder, stderr=subprocess.PIPE
    )
    gateway = Gateway(LoggedProcess(process), port)
    try:
        await gateway.event("supervisor.announced", notice="ready")
        yield gateway
    finally:
        process.kill()
        await gateway.exit()


@asynccontextmanager
async def streaming(gateway: Gateway, backend: ScriptedBackend) -> AsyncIterator[tuple[RawClient, asyncio.Event]]:
    """A client that has got the beginning of a stream, and the event that lets it end."""
    gate = asyncio.Event()
    backend.add(stream(gate))
    async with raw_client(gateway.port) as client:
        await client.post(REQUEST)
        seen = await client.until(BEGINNING)
        assert seen.body == BEGINNING
        yield client, gate


async def test_control_killed_cuts_no_stream_and_refuses_no_request(tmp_path: Path) -> None:
    async with ScriptedBackend() as backend, served(tmp_path, backend) as gateway:
        async with streaming(gateway, backend) as (client, gate):
            gateway.kill("control")
            for _ in range(5):
                await gateway.serves(backend)
            await gateway.event("supervisor.decided", reason="control is ready")
            gate.set()
            seen = await client.answer()
            assert (seen.body, seen.whole) == (BEGINNING + ENDING, True)
        await gateway.serves(backend)
        assert len([e for e in gateway.process.seen if e.get("child") == "worker 0"]) == 1


async def test_a_killed_worker_takes_only_its_own_streams_with_it(tmp_path: Path) -> None:
    async with ScriptedBackend() as backend, served(tmp_path, backend, workers=2) as gateway, AsyncExitStack() as open_:
        streams: dict[str, list[tuple[RawClient, asyncio.Event]]] = {"worker 0": [], "worker 1": []}
        while not all(streams.values()):
            client, gate = await open_.enter_async_context(streaming(gateway, backend))
            streams[gateway.worker_of(client)].append((client, gate))
        gateway.kill("worker 0")
        for client, _ in streams["worker 0"]:
            seen = await client.answer()
            assert not seen.whole
            assert DONE not in seen.body
        for _ in range(10):
            await gateway.serves(backend)
        for client, gate in streams["worker 1"]:
            gate.set()
            seen = await client.answer()
            assert (seen.body, seen.whole) == (BEGINNING + ENDING, True)
        await gateway.event("supervisor.decided", reason="worker 0 is ready")


async def test_a_stop_lets_the_stream_finish_and_refuses_the_next_one(tmp_path: Path) -> None:
    async with ScriptedBackend() as backend, served(tmp_path, backend) as gateway:
        async with streaming(gateway, backend) as (client, gate):
            gateway.process.signal(signal.SIGTERM)
            await gateway.event("supervisor.announced", notice="stopping")
            await asyncio.to_thread(await_that, lambda: refuses(gateway.port), "connections are refused")
            gate.set()
            seen = await client.answer()
            assert (seen.body, seen.whole) == (BEGINNING + ENDING, True)
        assert await gateway.exit() == 0


async def test_a_second_signal_ends_streams_with_an_error_that_clients_can_read(tmp_path: Path) -> None:
    async with ScriptedBackend() as backend, served(tmp_path, backend) as gateway:
        async with streaming(gateway, backend) as (client, _):
            await asyncio.to_thread(gateway.process.stop_at_once)
            seen = await client.answer()
            assert seen.body.startswith(BEGINNING)
            assert seen.body.endswith(DONE)
            assert seen.error["code"] == "shutting_down"
        assert await gateway.exit() == 0


async def test_nothing_is_left_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    async with ScriptedBackend() as backend, served(tmp_path, backend, workers=2) as gateway:
        children = [gateway.process.pid_of(name) for name in ("control", "worker 0", "worker 1")]
        async with streaming(gateway, backend) as (client, _):
            gateway.process.signal(signal.SIGKILL)
            await client.answer()
        # Not asked of the port: another test may have been given it meanwhile.
        await asyncio.to_thread(await_that, lambda: not any(map(lives, children)), "the children end")


async def test_two_workers_share_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "clients.sock"
    async with ScriptedBackend() as backend, served(tmp_path, backend, workers=2, unix=path) as gateway:
        gateway.kill("worker 0")
        for _ in range(10):
            gate = asyncio.Event()
            gate.set()
            backend.add(stream(gate))
            client = RawClient(*await asyncio.open_unix_connection(str(path)))
            await client.post(REQUEST)
            seen = await client.answer()
            client.close()
            assert (seen.status, seen.body) == (200, BEGINNING + ENDING)
        await gateway.event("supervisor.decided", reason="worker 0 is ready")


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5.0).close()
    except ConnectionRefusedError:
        return True
    return False
