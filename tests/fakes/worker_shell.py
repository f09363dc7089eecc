"""A worker as it is composed, in the test's own loop: specification, listening socket, control's end of the link.

Unlike :mod:`tests.fakes.worker` it takes what is fixed while the gateway runs from the settings too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway import aio
from gateway.app.spec import InstallSpec, prepare_runtime_dir
from gateway.app.worker import WorkerShell
from gateway.control.link import LinkServer, WorkerRef
from gateway.core.link.messages import Hello, NewSnapshot, RequestRecord, Settled, WorkerMessage
from gateway.core.routing.snapshot import Snapshot


class ControlEnd:
    """Control's end of the link: gives each worker ``snapshot``, and keeps the records."""

    def __init__(self, path: str, snapshot: Snapshot) -> None:
        self.records: list[RequestRecord] = []
        self._snapshot = snapshot
        self.link = LinkServer(path, on_message=self._hear, on_gone=lambda _worker: None)

    def _hear(self, worker: WorkerRef, message: WorkerMessage) -> None:
        if isinstance(message, Hello):
            self.link.send(worker, NewSnapshot(snapshot=self._snapshot))
        elif isinstance(message, Settled):
            self.records += message.records


@asynccontextmanager
async def running_shell(spec: InstallSpec, snapshot: Snapshot) -> AsyncIterator[int]:
    """A worker that serves ``snapshot``; gives its port."""
    prepare_runtime_dir(Path(spec.runtime_dir))
    control = ControlEnd(spec.link_path, snapshot)
    await control.link.start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        shell = WorkerShell(spec, 0, {0: [listener]})
        ready = asyncio.Event()
        shell.ready = ready.set
        running = aio.spawn(shell.run(), name="worker")
        try:
            await ready.wait()
            yield listener.getsockname()[1]
        finally:
            shell.stop(0.0)
            await asyncio.wait([running])
            await control.link.close()
