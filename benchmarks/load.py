"""The load: raw HTTP/1.1 clients on uvloop that check every answer and time every event.

A client holds one connection and runs one request at a time on it. What it sees goes into a shared `Tally`; nothing
is decided here. Streams must be complete (all events, a finish reason, `[DONE]`, a clean HTTP end) or they count
as failures.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import httptools

from benchmarks import vllm_bytes

_DONE = b"data: [DONE]\n\n"
_FINISH = b'"finish_reason":"stop"'


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request ready to be sent, and what a right answer to it holds."""

    data: bytes
    events: int
    answer_bytes: int


@dataclass(slots=True)
class Tally:
    """What a run saw; owned by the run, filled by its clients. Times in microseconds."""

    events: int = 0
    answers: int = 0
    complete_streams: int = 0
    failures: list[str] = field(default_factory=list)
    timing: bool = True
    lenient: bool = False
    """The relay writes answers anew: they must end properly, but need not be what the engine sent."""
    first_event_us: list[float] = field(default_factory=list)
    gap_us: list[float] = field(default_factory=list)
    lag_us: list[float] = field(default_factory=list)


def chat_request(
    *,
    tokens: int,
    stream: bool,
    pace_ms: float = 25,
    grid_ms: float = 1,
    include_usage: bool = False,
    history: Sequence[str] = (),
) -> ChatRequest:
    """A chat request as the usual Python client sends it, asking the mock engine for `tokens` at a pace.

    `history` is what was said before, by the user and the assistant in turn.
    """
    call: dict[str, object] = {
        "model": vllm_bytes.MODEL,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant. Answer briefly and to the point."},
            *({"role": ("user", "assistant")[turn % 2], "content": text} for turn, text in enumerate(history)),
            {"role": "user", "content": f"Tell me about the sea. pace_ms={pace_ms:g} grid_ms={grid_ms:g}"},
        ],
        "temperature": 0.7,
        "top_p": 0.95,
        "max_tokens": tokens,
    }
    if stream:
        call["stream"] = True
    if include_usage:
        call["stream_options"] = {"include_usage": True}
    body = json.dumps(call, separators=(",", ":")).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
        "Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.8.0\r\nX-Stainless-Lang: python\r\n"
        "X-Stainless-Package-Version: 2.8.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Async: async:asyncio\r\n"
        f"Authorization: Bearer none\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return ChatRequest(
        data=head.encode() + body,
        events=vllm_bytes.channel_tokens(tokens).events + (1 if include_usage else 0),
        answer_bytes=len(vllm_bytes.chat_answer(tokens, prompt_tokens=17)),
    )


class Client(asyncio.Protocol):
    """One connection and at most one open request on it. `on_end` is called once for every request, good or bad."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.request: ChatRequest | None = None
        self.now_us = 0.0
        self.sent_us = 0.0
        self._on_end: Callable[[], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone."""
        self._transport = None
        if self.request is not None:
            self.end(f"connection lost in mid-answer ({exc})")

    def send(self, request: ChatRequest, on_end: Callable[[], None]) -> None:
        """Send a request; only one may be open."""
        self.request = request
        self._on_end = on_end
        self._parser = httptools.HttpResponseParser(self)
        self.reset()
        if self._transport is None:
            self.end("not connected")
            return
        self.sent_us = time.monotonic_ns() / 1000
        self._transport.write(request.data)

    def end(self, fault: str | None) -> None:
        """Close the request's account and report its end."""
        on_end, self.request, self._on_end = self._on_end, None, None
        if fault is not None:
            self.tally.failures.append(fault)
        if on_end is not None:
            on_end()

    def close(self) -> None:
        """Drop the connection; an open request ends without a failure."""
        self.request = None
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.now_us = time.monotonic_ns() / 1000
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.request is not None:
                self.end(f"not HTTP: {error}")

    def on_message_complete(self) -> None:
        """Called by the parser at the proper end of a response."""
        status = self._parser.get_status_code()
        self.end(f"status {status}" if status != 200 else self.fault())

    @abstractmethod
    def reset(self) -> None:
        """Forget the last answer."""

    @abstractmethod
    def on_body(self, body: bytes) -> None:
        """Called by the parser with a piece of the body."""

    @abstractmethod
    def fault(self) -> str | None:
        """What is wrong with the finished answer, if anything."""


class StreamClient(Client):
    """Counts and times the events of streamed answers."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self.reset()

    def reset(self) -> None:
        """Forget the last answer."""
        self._events = 0
        self._rest = b""
        self._last_us = 0.0
        self._finished = False
        self._done = False

    def on_body(self, body: bytes) -> None:
        """Take whole events; what is cut in the middle waits for its rest."""
        if self._rest:
            body = self._rest + body
            self._rest = b""
        if not body.endswith(b"\n\n"):
            body, mark, self._rest = body.rpartition(b"\n\n")
            if not mark:
                return
            body += mark
        count = body.count(b"data: ")
        if not count:
            return
        self._events += count
        tally = self.tally
        tally.events += count
        if tally.timing:
            self._time(body)
        if self.request is not None and (tally.lenient or self._events >= self.request.events - 2):
            self._finished = self._finished or _FINISH in body
            self._done = body.endswith(_DONE)
            if self._done:
                tally.complete_streams += 1

    def _time(self, body: bytes) -> None:
        tally, now_us = self.tally, self.now_us
        if self._last_us:
            tally.gap_us.append(now_us - self._last_us)
        else:
            tally.first_event_us.append(now_us - self.sent_us)
        self._last_us = now_us
        if tally.lenient:
            return
        at = body.rfind(vllm_bytes.STAMP_MARK)
        if at >= 0:
            start = at + len(vllm_bytes.STAMP_MARK)
            stamped = int(body[start : start + vllm_bytes.STAMP_DIGITS])
            tally.lag_us.append(vllm_bytes.lag_us(stamped, int(now_us)))

    def fault(self) -> str | None:
        """Incomplete streams are failures, whatever the status said."""
        expected = self.request.events if self.request is not None else 0
        if self._events != expected and not self.tally.lenient:
            return f"{self._events} events instead of {expected}"
        if not (self._finished and self._done) or self._rest:
            return "no proper end"
        return None


class AnswerClient(Client):
    """Checks whole answers (`stream: false`)."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self.reset()

    def reset(self) -> None:
        """Forget the last answer."""
        self._pieces: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        """Keep the piece."""
        self._pieces.append(body)

    def fault(self) -> str | None:
        """The answer must have the right length and look like a chat answer."""
        body = b"".join(self._pieces)
        if self.request is None or (len(body) != self.request.answer_bytes and not self.tally.lenient):
            return f"{len(body)} bytes of answer"
        if b'"object":"chat.completion"' not in body:
            return "not a chat answer"
        self.tally.answers += 1
        if self.tally.timing:
            self.tally.first_event_us.append(self.now_us - self.sent_us)
        return None


ClientT = TypeVar("ClientT", bound=Client)


async def connect(kind: Callable[[Tally], ClientT], port: int, *, count: int, tally: Tally) -> list[ClientT]:
    """Open `count` connections to a port on this machine."""
    loop = asyncio.get_running_loop()
    clients: list[ClientT] = []
    for _ in range(count):
        _, client = await loop.create_connection(lambda: kind(tally), "127.0.0.1", port)
        clients.append(client)
    return clients
