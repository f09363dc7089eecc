"""An engine that begins answers on all four APIs and never ends them, and notes when the client of each is gone.

A request's ``user`` says how far its answer gets and which one it is: ``MOMENT:NUMBER``.  Runs inside the harness, so
that both ends of a figure are of one clock, or as a process of its own that can be killed: ``python -m
benchmarks.leaving_engine PORT``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, cast

import uvloop

TICK_S: Final = 0.02
"""Between two tokens of a stream: a stream at 50 tok/s."""


class Moment(StrEnum):
    """How far an answer has come when its client leaves."""

    QUEUED = "while queued"
    HEADERS = "before headers"
    PREFILL = "in silent prefill"
    MIDDLE = "in the middle"


def _event(name: str, **fields: object) -> bytes:
    line = f"event: {name}\n" if name else ""
    data = fields | ({"type": name} if name else {})
    return f"{line}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _delta(**delta: str) -> list[dict[str, object]]:
    return [{"index": 0, "delta": delta, "finish_reason": None}]


BEGINNINGS: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        "/v1/chat/completions": _event("", choices=_delta(role="assistant", content="")),
        "/v1/completions": _event("", choices=[{"index": 0, "text": "", "finish_reason": None}]),
        "/v1/responses": _event("response.created", response={"id": "resp_1", "status": "in_progress"}),
        "/v1/messages": _event("message_start", message={"id": "m", "usage": {"input_tokens": 7}})
        + _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    }
)
TOKENS: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        "/v1/chat/completions": _event("", choices=_delta(content=" sea")),
        "/v1/completions": _event("", choices=[{"index": 0, "text": " sea", "finish_reason": None}]),
        "/v1/responses": _event("response.output_text.delta", delta=" sea"),
        "/v1/messages": _event("content_block_delta", index=0, delta={"type": "text_delta", "text": " sea"}),
    }
)
PATHS: Final = tuple(TOKENS)

_STREAM: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_WHOLE: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n"
_METRICS: Final = b'vllm:num_requests_running{engine="0",model_name="%b"} 0.0\n'


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _answer(body: bytes, kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


class Engine:
    """Serves ``model``; ``began`` and ``gone`` hold, by number, futures of what the harness waits for."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.began: dict[str, asyncio.Future[None]] = {}
        self.gone: dict[str, asyncio.Future[float]] = {}

    async def listen(self, port: int) -> asyncio.Server:
        """Listen on loopback."""
        return await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", port)

    def expect(self, number: str) -> None:
        """A request of that number will come."""
        loop = asyncio.get_running_loop()
        self.began[number], self.gone[number] = loop.create_future(), loop.create_future()

    def fixed(self, target: str) -> bytes:
        """The answer to what monitoring asks."""
        model = self.model.encode()
        match target:
            case "/health":
                return _answer(b"", b"text/plain")
            case "/version":
                return _answer(b'{"version":"0.32.0"}')
            case "/metrics":
                return _answer(_METRICS % model, b"text/plain")
            case _:
                return _answer(b'{"object":"list","data":[{"id":"%b","object":"model"}]}' % model)


class _Connection(asyncio.Protocol):
    """One connection: requests in, beginnings of answers out."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._received = b""
        self._number = ""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer once a request is whole."""
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = next((int(it[15:]) for it in head.lower().split(b"\r\n") if it.startswith(b"content-length:")), 0)
        if not blank or len(body) < length:
            return
        self._received = body[length:]
        method, target, _ = head.decode("latin-1").split(" ", 2)
        if method == "GET":
            self._transport.write(self._engine.fixed(target))
        else:
            self._begin(target, json.loads(body))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (protocol)
        """The moment that is measured."""
        if self._timer is not None:
            self._timer.cancel()
        gone = self._engine.gone.get(self._number)
        if gone is not None and not gone.done():
            gone.set_result(time.perf_counter())

    def _begin(self, path: str, asked: dict[str, object]) -> None:
        moment, _, self._number = str(asked.get("user", f"{Moment.MIDDLE}:")).partition(":")
        stream = bool(asked.get("stream"))
        if moment in {Moment.PREFILL, Moment.MIDDLE}:
            self._transport.write(_STREAM if stream else _WHOLE)
        if moment == Moment.MIDDLE:
            if stream:
                self._transport.write(_chunk(BEGINNINGS[path]))
                self._tick(_chunk(TOKENS[path]))
            else:
                self._transport.write(b'{"id":"')
        began = self._engine.began.get(self._number)
        if began is not None and not began.done():
            began.set_result(None)

    def _tick(self, token: bytes) -> None:
        self._transport.write(token)
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick, token)


async def _serve(port: int) -> None:
    server = await Engine("killed").listen(port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
