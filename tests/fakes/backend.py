"""A scripted backend on a real socket: plays given bytes, ends as told, and keeps what it was asked.

Speaks just enough HTTP/1.1 to find the end of a request; what it answers is bytes from the test, so that broken
answers are as easy as good ones.  Runs on the test's own event loop, over TCP, TLS or a Unix socket, and never
sleeps: a script that must wait waits for an event of the test.

    async with ScriptedBackend() as backend:
        backend.add(Script(pieces=(head, event, gate, rest), end=End.RESET))
        ...
        exchange = await backend.exchange(0)
        await exchange.client_closed.wait()
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, cast

from gateway import aio
from tests.fakes.recordings import RecordedEnd, Recording


class End(StrEnum):
    """What the backend does after the last piece."""

    KEEP_ALIVE = "keep_alive"  # waits for the next request
    CLOSE = "close"  # sends all and closes
    RESET = "reset"  # drops the connection; on TCP and TLS the client sees a reset
    HANG = "hang"  # keeps the connection and says nothing until the client closes


@dataclass(frozen=True, slots=True)
class Script:
    """What happens to one request: bytes are written as they are, an event is waited for.

    Each piece is a write of its own, and the loop turns between two pieces, so a client on the same loop gets them
    apart.  ``early``: begins as soon as the head is there, without waiting for the body, which is then not kept.
    """

    pieces: tuple[bytes | asyncio.Event, ...]
    end: End = End.KEEP_ALIVE
    early: bool = False

    @classmethod
    def of_recording(cls, recording: Recording, *, cuts: Iterable[int] = ()) -> Self:
        """Replay a recorded answer, cut at the given byte positions, to the end that it had."""
        whole = recording.with_head()
        ends = {
            RecordedEnd.COMPLETE: End.CLOSE if whole.headers.get("connection") == "close" else End.KEEP_ALIVE,
            RecordedEnd.EOF: End.CLOSE,
            RecordedEnd.SILENCE: End.HANG,
            RecordedEnd.CLIENT_CLOSED: End.HANG,
        }
        return cls(pieces=tuple(cut(whole.raw, cuts)), end=ends[recording.end])


def cut(data: bytes, positions: Iterable[int]) -> list[bytes]:
    """Cut ``data`` before each of ``positions``; those outside and empty pieces are left out."""
    edges = [0, *sorted(set(positions)), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(edges)]
    return [piece for piece in pieces if piece]


def answer(body: bytes, *, status: int = 200, content_type: str = "application/json", headers: str = "") -> bytes:
    """Return a whole HTTP answer; ``headers`` are further header lines, each ending in CRLF."""
    head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came: its head as bytes, blank line included, and its body."""

    method: str
    target: str
    head: bytes
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """Header values by lower-case name; the last one of a name counts."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


@dataclass(slots=True)
class Exchange:
    """One scripted request and what became of it; times are those of the running loop."""

    request: Request
    connection: int  # the connection's number, from 0
    began_at: float
    sent_bytes: int = 0
    played: asyncio.Event = field(default_factory=asyncio.Event)  # every piece was written
    blocked: asyncio.Event = field(default_factory=asyncio.Event)  # the client did not take what was written, once
    client_closed: asyncio.Event = field(default_factory=asyncio.Event)  # its connection ended, during or after it
    closed_at: float | None = None  # when it did


Answerer = Callable[[Request], Script]


class ScriptedBackend:
    """The backend; owner: one test.  Unscripted requests get 501 and are kept in ``unscripted``."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        unix_path: Path | None = None,
        answerer: Answerer | None = None,
    ) -> None:
        self.models: tuple[str, ...] = ("tiny",)
        # What monitoring gets, by path; a test may change it.  `/v1/models` lists `models` unless it stands here.
        self.fixed: dict[str, bytes] = {
            "/health": answer(b"", content_type="text/plain"),
            "/version": answer(b'{"version":"0.32.0"}'),
            "/metrics": answer(
                b'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0\n'
                b'vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0\n'
                b'vllm:generation_tokens_total{engine="0",model_name="tiny"} 0.0\n',
                content_type="text/plain; version=0.0.4; charset=utf-8",
            ),
        }
        self.exchanges: list[Exchange] = []
        self.fixed_requests: list[Request] = []  # those answered from `fixed` or `models`
        self.unscripted: list[Request] = []
        self.failures: list[str] = []  # defects of a script or of this file
        self.accepted = 0
        self._scripts: deque[Script] = deque()
        self._answerer = answerer
        self._tls = tls
        self._unix_path = unix_path
        self._server: asyncio.Server | None = None
        self._address: tuple[str, int] = ("127.0.0.1", 0)
        self._connections: set[_Connection] = set()
        self._began = asyncio.Condition()
        self._nursery = aio.Nursery(lambda name, error: self.failures.append(f"{name}: {error!r}"))

    # --- what a test does with it --------------------------------------------------------------------------------

    def add(self, *scripts: Script) -> None:
        """Queue scripts: each answers one request, in the order in which the requests come."""
        self._scripts.extend(scripts)

    async def exchange(self, number: int) -> Exchange:
        """Wait until the scripted request ``number``, from 0, has begun."""
        async with self._began:
            await self._began.wait_for(lambda: len(self.exchanges) > number)
        return self.exchanges[number]

    @property
    def url(self) -> str:
        """Where the backend is, as the settings spell it; it keeps its port over `stop` and `start`."""
        if self._unix_path is not None:
            return f"unix:{self._unix_path}"
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self._address[0]}:{self._address[1]}"

    @property
    def port(self) -> int:
        return self._address[1]

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def drop_connections(self, *, reset: bool = False) -> None:
        """Close all open connections, idle or not."""
        for connection in list(self._connections):
            connection.drop(reset=reset)

    def sockets(self) -> list[Any]:
        """The sockets of all open connections."""
        return [connection.socket for connection in self._connections]

    async def start(self) -> None:
        """Listen; a second start listens where the first did."""
        loop = asyncio.get_running_loop()
        if self._unix_path is not None:
            self._server = await loop.create_unix_server(lambda: _Connection(self), str(self._unix_path))
            return
        host, port = self._address
        self._server = await loop.create_server(lambda: _Connection(self), host, port, ssl=self._tls)
        self._address = self._server.sockets[0].getsockname()[:2]

    async def stop(self) -> None:
        """Stop listening: new connections are refused, open ones stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._unix_path is not None:
            self._unix_path.unlink(missing_ok=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        for connection in list(self._connections):
            connection.abort()
        await self._nursery.close()
        if self.failures:
            raise AssertionError(f"the scripted backend failed: {self.failures}")

    # --- what its connections ask --------------------------------------------------------------------------------

    def fixed_answer(self, request: Request) -> bytes | None:
        """Return the answer to monitoring; None for a request that is the test's own."""
        if request.method != "GET":
            return None
        fixed = self.fixed.get(request.target)
        if fixed is None and request.target == "/v1/models":
            listed = ",".join(f'{{"id":"{name}","object":"model","max_model_len":2048}}' for name in self.models)
            fixed = answer(f'{{"object":"list","data":[{listed}]}}'.encode())
        if fixed is not None:
            self.fixed_requests.append(request)
        return fixed

    def queued_script(self) -> Script | None:
        """Take the next script of the queue."""
        return self._scripts.popleft() if self._scripts else None

    def script_for(self, request: Request) -> Script:
        """Return what the answerer has for a whole request that no queued script was there for."""
        if self._answerer is not None:
            return self._answerer(request)
        self.unscripted.append(request)
        return Script(pieces=(answer(b'{"error":{"message":"no script"}}', status=501),))

    async def begin(self, exchange: Exchange) -> None:
        async with self._began:
            self.exchanges.append(exchange)
            self._began.notify_all()

    def opened(self, connection: _Connection) -> int:
        self._connections.add(connection)
        self._nursery.spawn(connection.serve(), name=f"connection-{self.accepted}")
        self.accepted += 1
        return self.accepted - 1

    def closed(self, connection: _Connection) -> None:
        self._connections.discard(connection)


class _Connection(asyncio.Protocol):
    """One accepted connection: bytes in, scripts out."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend
        self._received = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = asyncio.Event()
        self._exchange: Exchange | None = None
        self._number = 0
        self._transport: asyncio.Transport

    # --- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = self._backend.opened(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._arrived.set()

    def eof_received(self) -> bool:
        self._note_end()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._note_end()
        self._backend.closed(self)

    def pause_writing(self) -> None:
        self._writable.clear()
        if self._exchange is not None:
            self._exchange.blocked.set()

    def resume_writing(self) -> None:
        self._writable.set()

    def _note_end(self) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.closed_at is None:
            exchange.closed_at = asyncio.get_running_loop().time()
            exchange.client_closed.set()
        self._ended.set()
        self._arrived.set()
        self._writable.set()

    # --- serving -------------------------------------------------------------------------------------------------

    @property
    def socket(self) -> Any:
        return self._transport.get_extra_info("socket")

    def abort(self) -> None:
        self._transport.abort()

    def drop(self, *, reset: bool) -> None:
        if not reset:
            self._transport.close()
            return
        connected = self._transport.get_extra_info("socket")
        if connected is not None and connected.family != socket.AF_UNIX:
            # Lingering for no time is what turns a close into a reset.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def serve(self) -> None:
        """Answer request after request until the connection ends."""
        while (head := await self._until(self._head_end)) is not None:
            method, target, _ = head.decode("latin-1").split(" ", 2)
            request = Request(method=method, target=target, head=head, body=b"")
            fixed = self._backend.fixed_answer(request)
            if fixed is not None:
                self._transport.write(fixed)
                continue
            script = self._backend.queued_script()
            if script is None or not script.early:
                body = await self._until(partial(self._body_end, request))
                if body is None:
                    return
                request = replace(request, body=body)
            if script is None:
                script = self._backend.script_for(request)
            self._exchange = exchange = Exchange(
                request=request, connection=self._number, began_at=asyncio.get_running_loop().time()
            )
            await self._backend.begin(exchange)
            await self._play(script, exchange)
            if script.early:
                await self._until(partial(self._body_end, request))

    def _head_end(self) -> int | None:
        end = self._received.find(b"\r\n\r\n")
        return None if end == -1 else end + 4

    def _body_end(self, request: Request) -> int | None:
        if request.headers.get("transfer-encoding", "").lower() == "chunked":
            end = self._received.find(b"0\r\n\r\n")
            return None if end == -1 else end + 5
        length = int(request.headers.get("content-length", "0"))
        return length if len(self._received) >= length else None

    async def _until(self, find_end: Callable[[], int | None]) -> bytes | None:
        """Wait until ``find_end`` gives a length, and take so many bytes; None when the connection ends before."""
        while (end := find_end()) is None:
            if self._ended.is_set():
                return None
            self._arrived.clear()
            await self._arrived.wait()
        taken = bytes(self._received[:end])
        del self._received[:end]
        return taken

    async def _play(self, script: Script, exchange: Exchange) -> None:
        for piece in script.pieces:
            if isinstance(piece, asyncio.Event):
                await _either(piece, self._ended)
            else:
                self._transport.write(piece)
                exchange.sent_bytes += len(piece)
                await self._writable.wait()
                # Two turns of the loop: in the first a client on this loop becomes readable, in the second it reads.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            if self._ended.is_set():
                return
        exchange.played.set()
        match script.end:
            case End.KEEP_ALIVE:
                pass
            case End.CLOSE | End.RESET:
                self.drop(reset=script.end is End.RESET)
                await self._ended.wait()
            case End.HANG:
                await self._ended.wait()


async def _either(*events: asyncio.Event) -> None:
    waiters = [aio.spawn(event.wait(), name="either") for event in events]
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
