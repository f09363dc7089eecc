"""A steady load on a gateway: long streams, and short requests one after the other, each on a fresh connection.

Every request has an id of its own and knows what its answer must be, so what a client saw can be held against what
the gateway says.  Progress is waited for, never slept for; the pauses here only keep the load light.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from gateway import aio
from tests.fakes.client import Answer, RawClient
from tests.fakes.gateway_process import connection
from tests.fakes.paced_engine import SECRETS, Fault, events, request, whole

PATIENCE_S = 30.0
SHORT_TOKENS = 3
SHORT_PAUSE_S = 0.01


@dataclass(slots=True)
class Asked:
    """One request as its client saw it; instants of the running loop.

    ``failure`` is "" for an answer that came, whatever it says, else "refused", "reset", "eof" or "late".
    """

    request_id: str
    stream: bool
    tokens: int
    began: float
    fault: Fault | None = None
    port: int = 0
    head_at: float | None = None
    ended: float | None = None
    failure: str = ""
    answer: Answer = field(default_factory=Answer)

    @property
    def expected(self) -> bytes:
        """The body of an answer that went well."""
        if self.stream:
            return b"".join(events(self.request_id, self.tokens))
        return whole(self.request_id, self.tokens)

    @property
    def served(self) -> bool:
        """Whether all of the right answer came."""
        return (self.answer.status, self.answer.whole, self.answer.body) == (200, True, self.expected)

    @property
    def code(self) -> str:
        """The code of the error that the client was told, "" when there was none."""
        if self.served or b'"error"' not in self.answer.body:
            return ""
        return str(self.answer.error.get("code"))

    def __repr__(self) -> str:
        told = f"{self.answer.status} {self.failure or self.code} whole={self.answer.whole}"
        return f"<{self.request_id} {told} began={self.began:.3f} ended={self.ended} tail={self.answer.body[-80:]!r}>"


async def ask(address: str, asked: Asked, *, patience_s: float = PATIENCE_S) -> Asked:
    """Send the request on a fresh connection and take what comes."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(patience_s), connection(address) as client:
            if not address.startswith("unix:"):
                asked.port = client.writer.get_extra_info("sockname")[1]
            await _send(client, asked)
            if asked.stream:
                asked.answer = await client.until(b"data:", timeout_s=patience_s)
                asked.head_at = loop.time()
            asked.answer = await client.answer(timeout_s=patience_s)
            asked.failure = "" if asked.answer.whole else "eof"
    except ConnectionRefusedError:
        asked.failure = "refused"
    except OSError:
        asked.failure = "reset"
    except TimeoutError:
        asked.failure = "late"
    finally:
        asked.ended = loop.time()
    return asked


async def _send(client: RawClient, asked: Asked) -> None:
    body = request(asked.request_id, stream=asked.stream, tokens=asked.tokens, fault=asked.fault)
    headers = {"X-Request-Id": asked.request_id, "Authorization": f"Bearer {SECRETS['client token']}"}
    await client.post(body, headers=headers)


class Load:
    """Runs from the beginning of its block until :meth:`finish` or the block's end; ``asked`` are all requests."""

    def __init__(self, address: str, *, streams: int = 10, shorts: int = 2, tokens: tuple[int, int] = (10, 25)) -> None:
        """``streams`` and ``shorts`` go on at a time; ``tokens`` bounds the length of a stream."""
        self.asked: list[Asked] = []
        self._address = address
        self._numbers = (streams, shorts)
        self._tokens = tokens
        self._chance = random.Random(20)
        self._going_on = True
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Condition()

    async def __aenter__(self) -> Self:
        streams, shorts = self._numbers
        self._tasks = [aio.spawn(self._stream_after_stream(), name=f"stream {at}") for at in range(streams)]
        self._tasks += [aio.spawn(self._short_after_short(), name=f"short {at}") for at in range(shorts)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish(self) -> None:
        """Begin nothing more and wait for what is open."""
        self._going_on = False
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)

    async def _stream_after_stream(self) -> None:
        while self._going_on:
            await self._one(stream=True, tokens=self._chance.randint(*self._tokens))
            await asyncio.sleep(SHORT_PAUSE_S)

    async def _short_after_short(self) -> None:
        while self._going_on:
            await self._one(stream=False, tokens=SHORT_TOKENS)
            await asyncio.sleep(SHORT_PAUSE_S)

    async def _one(self, *, stream: bool, tokens: int) -> None:
        began = asyncio.get_running_loop().time()
        asked = Asked(f"load-{len(self.asked)}", stream=stream, tokens=tokens, began=began)
        self.asked.append(asked)
        await ask(self._address, asked)
        async with self._news:
            self._news.notify_all()

    # --- what tests ask -------------------------------------------------------------------------------------------

    @property
    def open(self) -> list[Asked]:
        """Requests that have not ended."""
        return [asked for asked in self.asked if asked.ended is None]

    @property
    def open_streams(self) -> list[Asked]:
        """Streams of which something has come, and not all."""
        return [asked for asked in self.open if asked.head_at is not None]

    @property
    def unserved(self) -> list[Asked]:
        """Requests that ended in anything but the right answer."""
        return [asked for asked in self.asked if asked.ended is not None and not asked.served]

    async def until(self, holds: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
        """Wait until something holds; looked at whenever a request has ended."""
        try:
            async with asyncio.timeout(within_s), self._news:
                await self._news.wait_for(holds)
        except TimeoutError:
            raise AssertionError(f"not in {within_s:g} s; of late: {self.asked[-5:]}") from None

    async def served_since(self, began: float, *, count: int = 1) -> float:
        """Wait until so many requests that began after ``began`` were served; when the last of them ended."""

        def ends() -> list[float]:
            return sorted(it.ended for it in self.asked if it.began > began and it.ended is not None and it.served)

        await self.until(lambda: len(ends()) >= count)
        return ends()[count - 1]

    async def more(self, count: int) -> None:
        """Wait until so many more requests were begun and served."""
        await self.served_since(asyncio.get_running_loop().time(), count=count)

    async def streaming(self, count: int) -> None:
        """Wait until so many streams are open and have begun to come."""
        await self.until(lambda: len(self.open_streams) >= count)


async def leave_midway(address: str, asked: Asked) -> Asked:
    """Send a stream's request, take its beginning, and go."""
    async with connection(address) as client:
        with suppress(OSError):
            await _send(client, asked)
            await client.until(b"data:")
        client.reset()
    asked.failure = "left"
    asked.ended = asyncio.get_running_loop().time()
    return asked
