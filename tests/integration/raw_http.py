"""The smallest HTTP client: sends exactly the bytes that a test wants, one request a connection.

Unlike a library it adds no header and refuses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, read as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The code of an error of our own."""
        return self.json()["error"]["code"]


def head_of(method: str, target: str, headers: Mapping[str, str], *, body: bytes = b"") -> bytes:
    """A request head; `Content-Length` is added where there is a body."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode()


async def read_head(reader: asyncio.StreamReader) -> Answer:
    """Status and headers of a response, its body unread."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return Answer(int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}, b"")


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes, *, head_only: bool = False
) -> Answer:
    """Send `sent` on a fresh connection and read the one answer; closes it."""
    writer.write(sent)
    try:
        async with asyncio.timeout(20):
            head = await read_head(reader)
            length = 0 if head_only else int(head.headers.get("content-length", "0"))
            return Answer(head.status, head.headers, await reader.readexactly(length))
    finally:
        writer.close()
