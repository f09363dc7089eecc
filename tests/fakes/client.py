"""A raw HTTP/1.1 client for tests: sends what it is told, byte by byte if need be, and sees everything that comes.

Answers are parsed by httptools, a parser that is not the gateway's own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httptools

READ_BYTES = 64 * 1024


@dataclass(slots=True)
class Answer:
    """What came back; ``whole`` says whether the message ended as its framing promised."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False

    @property
    def events(self) -> list[bytes]:
        """The body's events, each with its blank line."""
        return [event + b"\n\n" for event in self.body.split(b"\n\n") if event]

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a JSON body, or of the last event but the end marker."""
        text = self.body
        if not text.startswith(b"{"):
            text = next(e for e in reversed(self.events) if b'"error"' in e).removeprefix(b"data: ")
        error: dict[str, Any] = json.loads(text)["error"]
        return error


class RawClient:
    """One connection to the gateway.  Owner: one test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._answer = Answer()
        self._body = bytearray()  # of that answer, so far
        self._parser = httptools.HttpResponseParser(self)

    # --- httptools' callbacks ---

    def on_message_begin(self) -> None:
        self._answer = Answer()
        self._body.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._answer.whole = True

    # --- what tests do ---

    async def send(self, data: bytes) -> None:
        """Write raw bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def post(
        self,
        body: Mapping[str, Any] | bytes,
        *,
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str] | None = None,
        version: str = "1.1",
        method: str = "POST",
    ) -> None:
        """Send one request with a body: JSON, unless a header says otherwise."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"Host": "gateway", "Content-Type": "application/json", **(headers or {})}
        head = f"{method} {path} HTTP/{version}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
        await self.send(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)

    async def answer(self, *, timeout_s: float = 20.0) -> Answer:
        """Read one whole answer, or what there is of it when the connection ends."""
        async with asyncio.timeout(timeout_s):
            while not self._answer.whole:
                data = await self.reader.read(READ_BYTES)
                if not data:
                    break
                self._parser.feed_data(data)
        answer, self._answer = self._so_far(), Answer()
        self._body.clear()
        return answer

    async def until(self, needle: bytes, *, timeout_s: float = 20.0) -> Answer:
        """Read until the body so far holds ``needle`` or is whole; returns the answer so far."""
        async with asyncio.timeout(timeout_s):
            while needle not in self._body and not self._answer.whole:
                data = await self.reader.read(READ_BYTES)
                if not data:
                    break
                self._parser.feed_data(data)
        return self._so_far()

    def _so_far(self) -> Answer:
        self._answer.body = bytes(self._body)
        return self._answer

    async def at_end(self, *, timeout_s: float = 20.0) -> bool:
        """Whether the gateway closes the connection without another byte."""
        async with asyncio.timeout(timeout_s):
            return await self.reader.read(READ_BYTES) == b""

    def close(self) -> None:
        """Leave as a polite client does."""
        self.writer.close()

    def reset(self) -> None:
        """Leave with a reset."""
        connected: socket.socket = self.writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[RawClient]:
    """A connection to the loopback ``port``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = RawClient(reader, writer)
    try:
        yield client
    finally:
        writer.transport.abort()
