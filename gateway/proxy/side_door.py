"""How a reader of a side stream gets to it: its own worker's shelf, or through the private socket of another one.

Beside the stations.  Each worker has a Unix socket in the runtime directory (mode 0700, same user).  Who asks there
sends one line, the id and the key's id, and gets a mark and then the events as they come; the connection's end is the
end.  A reader's slowness stays with the reader: at the door its events wait within the same bound as at home.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import msgspec

from gateway import aio
from gateway.core.stream.envelope import DONE_EVENT
from gateway.core.stream.http1 import TERMINATOR, chunk
from gateway.errors import NotFound
from gateway.proxy import envelope
from gateway.proxy.side import CUT_SHORT, SideShelf, SideStream, slot_of
from gateway.proxy.wire import ClientWire

READ_BYTES: Final = 64 * 1024
ASK_S: Final = 5.0
_MOST_ASKED_BYTES: Final = 4096
_FOUND: Final = b"+"
_NOT_FOUND: Final = b"-"
_HEADERS: Final = b"Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-store\r\n"


class _Asked(msgspec.Struct):
    side_id: str
    key_id: str


class _WireReader:
    """A client's connection as a reader."""

    def __init__(self, wire: ClientWire, *, chunked: bool) -> None:
        self._wire = wire
        self._chunked = chunked
        self.done = asyncio.Event()

    @property
    def unsent_bytes(self) -> int:
        return self._wire.unsent_bytes

    def write(self, events: bytes) -> None:
        self._wire.send(chunk(events) if self._chunked else events)

    def over(self) -> None:
        self.done.set()


class _DoorReader:
    """Another worker as a reader."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.done = asyncio.Event()

    @property
    def unsent_bytes(self) -> int:
        size: int = self._writer.transport.get_write_buffer_size()
        return size

    def write(self, events: bytes) -> None:
        self._writer.write(events)

    def over(self) -> None:
        self.done.set()


class SideDoor:
    """One a worker.  Owner of its socket, where it has siblings."""

    def __init__(self, shelf: SideShelf, runtime_dir: str | None) -> None:
        """``runtime_dir`` None: this worker has no sibling, so nobody asks and nobody is asked."""
        self._shelf = shelf
        self._folder = None if runtime_dir is None else Path(runtime_dir)
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to answer siblings."""
        if self._folder is None:
            return
        path = self._path(self._folder, self._shelf.slot)
        path.unlink(missing_ok=True)  # of a worker of this slot that was killed
        self._server = await asyncio.start_unix_server(self._answer, path)

    def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def serve(
        self, side_id: str, key_id: str, wire: ClientWire, *, headers: bytes, chunked: bool, patience_s: float
    ) -> None:
        """Write the stream ``side_id`` to a client, from its head to its end.  Raises NotFound before the first byte.

        ``patience_s``: how long the client may take no bytes.
        """
        head = envelope.head(200, b"OK", headers=_HEADERS + headers, length=None, chunked=chunked)
        slot = slot_of(side_id)
        stream = self._shelf.find(side_id, key_id) if slot == self._shelf.slot else None
        if stream is not None:
            wire.send(head)
            await _follow(stream, _WireReader(wire, chunked=chunked))
        elif slot is None or slot == self._shelf.slot or self._folder is None:
            raise _not_found()
        else:
            asked = _Asked(side_id, key_id)
            await self._pass_on(
                self._path(self._folder, slot), asked, wire, head=head, chunked=chunked, patience_s=patience_s
            )
        if chunked:
            wire.send(TERMINATOR)

    async def _pass_on(
        self, path: Path, asked: _Asked, wire: ClientWire, *, head: bytes, chunked: bool, patience_s: float
    ) -> None:
        with contextlib.ExitStack() as held:
            try:
                async with asyncio.timeout(ASK_S):
                    reader, writer = await asyncio.open_unix_connection(path, limit=READ_BYTES)
                    held.callback(writer.close)
                    writer.write(msgspec.json.encode(asked) + b"\n")
                    mark = await reader.read(1)
            except (OSError, TimeoutError) as error:
                raise _not_found() from error
            if mark != _FOUND:
                raise _not_found()
            wire.send(head)
            tail = b""
            while data := await _more(reader):
                tail = (tail + data)[-len(DONE_EVENT) :]
                wire.send(chunk(data) if chunked else data)
                if not await wire.drained(patience_s, whole=False):
                    wire.cut()
                    return
            if tail != DONE_EVENT:
                last = b"\n\n" + CUT_SHORT
                wire.send(chunk(last) if chunked else last)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One sibling's question."""
        try:
            async with asyncio.timeout(ASK_S):
                line = await reader.readuntil(b"\n")
            asked = msgspec.json.decode(line, type=_Asked)
            stream = self._shelf.find(asked.side_id, asked.key_id)
            writer.write(_NOT_FOUND if stream is None else _FOUND)
            if stream is not None:
                await _until_gone(stream, _DoorReader(writer), reader)
            await writer.drain()
        except (OSError, TimeoutError, EOFError, ValueError, msgspec.MsgspecError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            writer.close()

    @staticmethod
    def _path(folder: Path, slot: int) -> Path:
        return folder / f"s{slot}.sock"


async def _follow(stream: SideStream, reader: _WireReader | _DoorReader) -> None:
    stream.join(reader)
    try:
        await reader.done.wait()
    finally:
        stream.leave(reader)


async def _until_gone(stream: SideStream, door: _DoorReader, sibling: asyncio.StreamReader) -> None:
    """Follow until the stream is over or the sibling has hung up, which it does when its client leaves."""
    following = aio.spawn(_follow(stream, door), name="side-stream")
    leaving = aio.spawn(sibling.read(1), name="side-reader")
    try:
        await asyncio.wait([following, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (following, leaving):
            task.cancel()
        await asyncio.gather(following, leaving, return_exceptions=True)


async def _more(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(READ_BYTES)
    except OSError:
        return b""  # the owner died: told by the end that is missing


def _not_found() -> NotFound:
    return NotFound("there is no such reasoning stream, or not any more")
