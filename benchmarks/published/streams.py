"""The load: forced answers of a fixed length as streams, on connections that are kept, by a client that costs little.

It must leave the processors to the engine and the gateway, so it parses nothing: it counts events and looks at an
answer's end. What an answer measured is for the gateway to say.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Final, cast

_END: Final = b"data: [DONE]\n\n"
_EVENT: Final = b"data: "
_LAST_CHUNK: Final = b"0\r\n\r\n"
_TAIL_BYTES: Final = 64
_PROMPT: Final = " ".join(["please tell a long story about the sea and the wind"] * 8)
PROMPT_TOKENS: Final = 100
"""About: what the simulator counts for the prompt of :func:`forced`."""


class StreamFailed(Exception):
    """An answer was refused, broke off or had no proper end."""


def forced(model: str, tokens: int, *, number: int = 0) -> bytes:
    """A whole HTTP request for a stream of exactly so many tokens; ``number`` makes the words differ."""
    body = json.dumps({
        "model": model,
        "stream": True,
        "max_tokens": tokens,
        "ignore_eos": True,  # an answer of a fixed length thinks for the share of the preset
        "seed": number,
        "messages": [{"role": "user", "content": f"{number} {_PROMPT}"}],  # differs from the start on: nothing is cached
    }).encode()  # fmt: skip
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Stream(asyncio.Protocol):
    """One connection and at most one open answer on it; ``events`` counts those of all its answers."""

    def __init__(self) -> None:
        self.events = 0
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone."""
        self._transport = None
        self._fail(f"connection lost ({exc})")

    async def ask(self, request: bytes) -> None:
        """Send a request and wait for the end of its answer; raises StreamFailed."""
        if self._transport is None:
            raise StreamFailed("not connected")
        self._ended = asyncio.get_running_loop().create_future()
        self._tail = b""
        self._transport.write(request)
        await self._ended

    def data_received(self, data: bytes) -> None:
        """Count, and look at the end."""
        if not self._tail and not data.startswith(b"HTTP/1.1 200 "):
            self._fail(f"refused: {data[:300]!r}")
            return
        self.events += data.count(_EVENT)
        self._tail = self._tail[-_TAIL_BYTES:] + data if len(data) < _TAIL_BYTES else data
        if not self._tail.endswith(_LAST_CHUNK):
            return
        if _END not in self._tail:
            self._fail(f"no proper end: {self._tail!r}")
        elif self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, why: str) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(StreamFailed(why))

    def close(self) -> None:
        """Drop the connection, with an answer still open or not."""
        self._ended = None
        if self._transport is not None:
            self._transport.abort()


class Crowd:
    """A closed loop: each of its streams asks anew when it has its answer, until the crowd is told to leave.

    The first answers have lengths spread evenly up to the full one. From the time that they have all ended on, the
    streams are of every age alike and nothing changes any more: the steady state, which ``is_steady`` tells.
    """

    def __init__(self, streams: list[Stream], *, model: str, tokens: int) -> None:
        self.streams = streams
        self.is_steady = asyncio.Event()
        self._model = model
        self._tokens = tokens
        self._young = len(streams)
        self._numbers = iter(range(1_000_000))

    def lengths(self) -> Iterator[int]:
        """The length of each stream's first answer."""
        count = len(self.streams)
        return (max(1, round((index + 1) * self._tokens / count)) for index in range(count))

    async def run(self) -> None:
        """Ask until cancelled; StreamFailed (in an ExceptionGroup) ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                for stream, first in zip(self.streams, self.lengths(), strict=True):
                    group.create_task(self._live(stream, first))
        finally:
            for stream in self.streams:
                stream.close()

    async def _live(self, stream: Stream, first: int) -> None:
        await stream.ask(forced(self._model, first, number=next(self._numbers)))
        self._young -= 1
        if self._young == 0:
            self.is_steady.set()
        while True:
            await stream.ask(forced(self._model, self._tokens, number=next(self._numbers)))


async def connected(port: int, count: int) -> list[Stream]:
    """Open connections to a port of this machine."""
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(count):
        _, stream = await loop.create_connection(Stream, "127.0.0.1", port)
        made.append(stream)
    return made
