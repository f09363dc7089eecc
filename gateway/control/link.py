"""Control's end of the link: a Unix socket that workers connect to, one session for each.

Feeds the control loop's inbox and carries snapshots, shares and pulses out.  A worker that speaks another protocol is
refused, one that sends garbage or does not read is cut off alone: it comes back and gets a fresh snapshot.  Must not
know the fleet, and never waits for a worker.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway import aio
from gateway.core.link.framing import MAX_MESSAGE_BYTES, frame, worker_messages
from gateway.core.link.messages import PROTOCOL, ControlMessage, Hello, Refused, WorkerMessage
from gateway.errors import LinkGarbled

HELLO_S: Final = 2.0
MAX_UNSENT_BYTES: Final = 2 * MAX_MESSAGE_BYTES
"""What may wait for one worker; a worker that is further behind is cut off."""

_BACKLOG: Final = 128
_READ_BYTES: Final = 64 * 1024

log = logging.getLogger("gateway.link")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRef:
    """One worker's session.  ``session`` is new for each connection, so a worker that comes back is another ref."""

    session: int
    slot: int
    pid: int
    started_wall: float


class LinkServer:
    """Accepts workers from :meth:`start` to :meth:`close`.  Owns the sessions.

    ``on_message(worker, message)`` gets every message in order, the worker's Hello first; ``on_gone(worker)`` comes
    once after its last one.  Both run on the loop and must return at once.
    """

    def __init__(
        self,
        path: str,
        *,
        on_message: Callable[[WorkerRef, WorkerMessage], None],
        on_gone: Callable[[WorkerRef], None],
    ) -> None:
        self._path = Path(path)
        self._on_message = on_message
        self._on_gone = on_gone
        self._sessions: dict[WorkerRef, asyncio.StreamWriter] = {}
        self._numbers = itertools.count(1)
        self._nursery = aio.Nursery(_report_failure)
        self._server: asyncio.Server | None = None

    @property
    def workers(self) -> tuple[WorkerRef, ...]:
        """Workers with a session now, in order of arrival."""
        return tuple(self._sessions)

    async def start(self) -> None:
        """Take the path over (a dead control's socket is replaced) and accept workers.  Raises OSError."""
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self._path))
            self._path.chmod(0o600)
            self._server = await asyncio.start_unix_server(self._accept, sock=listener, backlog=_BACKLOG)
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        """End every session, what is buffered unsent is lost; ``on_gone`` has come for each when this returns."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for writer in self._sessions.values():
            writer.transport.abort()
        await self._nursery.close()

    def send(self, worker: WorkerRef, message: ControlMessage) -> None:
        """Send to one worker; nothing happens when its session is over.  Raises LinkGarbled over the bound."""
        self._write(worker, frame(message))

    def broadcast(self, message: ControlMessage) -> None:
        """Send to every worker.  Raises LinkGarbled over the bound."""
        framed = frame(message)
        for worker in self.workers:
            self._write(worker, framed)

    def _write(self, worker: WorkerRef, framed: bytes) -> None:
        writer = self._sessions.get(worker)
        if writer is None or writer.transport.is_closing():
            return
        unsent_bytes = writer.transport.get_write_buffer_size()
        if unsent_bytes > MAX_UNSENT_BYTES:
            log.warning("link.cut_off", extra={"slot": worker.slot, "unsent_bytes": unsent_bytes})
            writer.transport.abort()
            return
        writer.write(framed)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._nursery.spawn(self.attach(reader, writer), name="link session")

    async def attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end: from the socket, or one half of an in-memory pair."""
        messages = _messages(reader)
        try:
            hello = await _hello(messages)
            worker = WorkerRef(
                session=next(self._numbers), slot=hello.slot, pid=hello.pid, started_wall=hello.started_wall
            )
            self._sessions[worker] = writer
            try:
                self._on_message(worker, hello)
                async for message in messages:
                    self._on_message(worker, message)
            finally:
                del self._sessions[worker]
                self._on_gone(worker)
        except LinkGarbled as error:
            log.warning("link.refused", extra={"reason": error.message})
            writer.write(frame(Refused(reason=error.message)))
        except OSError as error:
            log.debug("link.reset", extra={"reason": str(error)})
        finally:
            await messages.aclose()
            writer.close()


async def _hello(messages: AsyncGenerator[WorkerMessage, None]) -> Hello:
    """The first message.  Raises LinkGarbled when it is none, late or of another protocol, OSError at the end."""
    try:
        async with asyncio.timeout(HELLO_S):
            hello = await anext(messages, None)
    except TimeoutError as error:
        raise LinkGarbled(f"no hello within {HELLO_S:g} s") from error
    if hello is None:
        raise ConnectionResetError("the worker left before its hello")
    if not isinstance(hello, Hello):
        raise LinkGarbled("the first message was no hello")
    if hello.protocol != PROTOCOL:
        raise LinkGarbled(f"the worker speaks protocol {hello.protocol}, control speaks {PROTOCOL}")
    return hello


async def _messages(reader: asyncio.StreamReader) -> AsyncGenerator[WorkerMessage, None]:
    """Messages of one connection until it ends.  Raises LinkGarbled, OSError."""
    framer = worker_messages()
    while data := await reader.read(_READ_BYTES):
        for message in framer.feed(data):
            yield message


def _report_failure(task: str, error: BaseException) -> None:
    log.error("task.failed", extra={"task": task}, exc_info=error)
