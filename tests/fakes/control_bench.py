"""A whole control process in the test's own loop: specification, operators' socket, a worker's end of the link."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gateway import aio
from gateway.admin.tokens import TOKEN_FILE
from gateway.app.control import ControlShell
from gateway.app.spec import InstallSpec, install_spec, write_spec
from gateway.core.link.messages import ControlMessage, Heartbeat, NewSnapshot
from gateway.core.routing.snapshot import Snapshot
from gateway.proxy.link import WorkerLink
from gateway.settings import load
from tests.fakes.probed_backend import ProbedBackend


def config_text(folder: Path, *fakes: ProbedBackend, more: str = "") -> str:
    """A configuration whose files all lie in ``folder``."""
    rows = "".join(f'      - {{name: {name}, url: "{fake.url}"}}\n' for name, fake in zip("abc", fakes, strict=False))
    places = f'runtime_dir: "{folder / "run"}"\nstore: {{path: "{folder / "history.db"}"}}\n'
    return f"pools:\n  - name: p\n    backends:\n{rows}{places}{more}"


def install(folder: Path, text: str) -> tuple[InstallSpec, Path]:
    """Write configuration and specification, as the serving command does; (specification, its path)."""
    file = folder / "gateway.yaml"
    file.write_text(text, encoding="utf-8")
    spec = install_spec(load(file, environ={}))
    return spec, write_spec(spec)


class FakeWorkerEnd:
    """A worker that does nothing but keep its end of the link; ``beat`` is what its heartbeats say."""

    def __init__(self, spec: InstallSpec) -> None:
        self.messages: list[ControlMessage] = []
        self.beat: dict[str, Any] = {}
        self._news = asyncio.Event()
        self.link = WorkerLink(
            spec.link_path, 0, on_message=self._hear, heartbeat=self._heartbeat, started_wall=time.time()
        )

    def _hear(self, message: ControlMessage) -> None:
        self.messages.append(message)
        self._news.set()
        self._news = asyncio.Event()

    def _heartbeat(self) -> Heartbeat:
        said: dict[str, Any] = {"in_flight": {}, "holding": 0, "connections": 0, "outcomes": {}} | self.beat
        return Heartbeat(slot=0, sent_at=time.monotonic(), generation=0, **said)

    @property
    def snapshots(self) -> list[Snapshot]:
        """Every snapshot that came, in order."""
        return [message.snapshot for message in self.messages if isinstance(message, NewSnapshot)]

    @property
    def states(self) -> dict[str, str]:
        """The state of each backend in the latest snapshot."""
        return {view.name: view.state.value for view in self.snapshots[-1].backends} if self.snapshots else {}

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
        """Returns when ``condition`` holds; looked at whenever a message came."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._news.wait()


@asynccontextmanager
async def worker_end(spec: InstallSpec) -> AsyncIterator[FakeWorkerEnd]:
    """A connected worker's end, closed with the block."""
    worker = FakeWorkerEnd(spec)
    task = aio.spawn(worker.link.run(), name="worker end")
    try:
        yield worker
    finally:
        await worker.link.close(timeout_s=5.0)
        task.cancel()
        await asyncio.wait([task])


class RunningControl:
    """A control shell that runs; asks it over HTTP like an operator."""

    def __init__(self, shell: ControlShell, spec: InstallSpec, port: int) -> None:
        self.shell = shell
        self.spec = spec
        self.base = f"http://127.0.0.1:{port}"
        self.readies = 0
        self.ready = asyncio.Event()
        self.exit_code: int | None = None

    def note_ready(self) -> None:
        self.readies += 1
        self.ready.set()

    async def ask(self, path: str, *, method: str = "GET", body: str = "", host: str = "") -> tuple[int, Any]:
        """Status and JSON (else text) of an answer of the admin API; ``host`` is the name that it is asked by."""
        token = (Path(self.spec.runtime_dir) / TOKEN_FILE).read_text().strip()
        headers = {"Authorization": f"Bearer {token}"} | ({"Host": host} if host else {})
        async with (
            aiohttp.ClientSession() as session,  # noqa: TID251 - an operator's client
            session.request(method, self.base + path, headers=headers, data=body) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


@asynccontextmanager
async def running_control(spec: InstallSpec) -> AsyncIterator[RunningControl]:
    """Control, from ready to ended in order; raises what its start raises."""
    listener = _listener()
    port = listener.getsockname()[1]
    control = RunningControl(ControlShell(spec, [listener]), spec, port)
    control.shell.ready = control.note_ready
    running = aio.spawn(control.shell.run(), name="control")
    waiting = aio.spawn(control.ready.wait(), name="ready")
    try:
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield control
    finally:
        waiting.cancel()
        control.shell.stop(1.0)
        await asyncio.wait([running])
        listener.close()
        if running.exception() is None:
            control.exit_code = running.result()
