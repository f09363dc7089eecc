"""An engine that answers chat requests at a pace, on top of the scripted backend, and keeps whom it answered.

The request says by its own fields what happens to it: ``user`` is its id, ``max_tokens`` the length of the answer,
``stop`` a fault (:class:`Fault`).  Every prompt and answer holds a text that may stand nowhere but in them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tests.fakes.backend import End, Request, Script, ScriptedBackend, answer

SECRETS: Final = {
    "prompt": "sentinel-prompt-7f3a",
    "answer": "sentinel-answer-91c2",
    "key": "sentinel-key-55d0",
    "client token": "sentinel-token-aa18",
}
LEAK: Final = re.compile("|".join(SECRETS.values()).encode())
DONE: Final = b"data: [DONE]\n\n"
PACE_S: Final = 0.05
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_LAST: Final = b"0\r\n\r\n"


class Fault(StrEnum):
    """What can go wrong with a request at this engine."""

    DIES = "dies"  # the connection closes in the middle of the stream
    STALLS = "stalls"  # no byte follows the first event
    REFUSES = "refuses"  # 400: the request's own fault
    BREAKS = "breaks"  # 500
    ABORTS = "aborts"  # finish_reason: abort


def request(request_id: str, *, stream: bool, tokens: int, fault: Fault | None = None) -> dict[str, Any]:
    """The body of a chat request that this engine understands."""
    body: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": SECRETS["prompt"]}],
        "user": request_id,
        "max_tokens": tokens,
        "stream": stream,
    }
    return body if fault is None else {**body, "stop": [fault]}


def events(request_id: str, tokens: int, *, finish: str = "stop") -> list[bytes]:
    """The events of a streamed answer, the end marker last, as a client gets them that did not ask for usage."""
    deltas = [{"role": "assistant", "content": ""}] + [
        {"content": f"{SECRETS['answer']} {at} "} for at in range(tokens)
    ]
    chunks = [_chunk(request_id, delta, finish=None) for delta in deltas]
    return [*chunks, _chunk(request_id, {}, finish=finish), DONE]


def whole(request_id: str, tokens: int) -> bytes:
    """The body of an answer that is no stream."""
    text = "".join(f"{SECRETS['answer']} {at} " for at in range(tokens))
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps(
        {"id": request_id, "object": "chat.completion", "choices": [choice], "usage": _usage(tokens)}
    ).encode()


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}


def _chunk(request_id: str, delta: dict[str, str], *, finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({"id": request_id, "object": "chat.completion.chunk", "choices": [choice]})


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class PacedEngine:
    """One engine.  ``answered`` are the ids of the requests that reached it, in order."""

    def __init__(self, *, unix_path: Path | None = None) -> None:
        self.answered: list[str] = []
        self.backend = ScriptedBackend(answerer=self._answer, unix_path=unix_path)

    def _answer(self, asked: Request) -> Script:
        body = json.loads(asked.body)
        request_id, tokens = body["user"], body["max_tokens"]
        self.answered.append(request_id)
        if asked.headers.get("authorization") != f"Bearer {SECRETS['key']}":
            return Script((answer(b'{"error":{"message":"wrong key"}}', status=401),))
        fault = Fault(body["stop"][0]) if "stop" in body else None
        match fault:
            case Fault.REFUSES:
                return Script((answer(b'{"error":{"message":"no such thing","code":400}}', status=400),))
            case Fault.BREAKS:
                return Script((answer(b'{"error":{"message":"broken","code":500}}', status=500),))
            case _ if not body["stream"]:
                return Script((answer(whole(request_id, tokens)),))
            case _:
                usage = bool((body.get("stream_options") or {}).get("include_usage"))
                return _stream(request_id, tokens, usage=usage, fault=fault)


def _stream(request_id: str, tokens: int, *, usage: bool, fault: Fault | None) -> Script:
    """An event each ``PACE_S``; the usage event, where asked for, before the end marker."""
    paced = events(request_id, tokens, finish="abort" if fault is Fault.ABORTS else "stop")
    if usage:
        data = {"id": request_id, "object": "chat.completion.chunk", "choices": [], "usage": _usage(tokens)}
        paced.insert(-1, _event(data))
    pieces: list[bytes | asyncio.Event] = [_HEAD]
    loop = asyncio.get_running_loop()
    if fault in (Fault.DIES, Fault.STALLS):
        paced = paced[:2]
    for at, event in enumerate(paced):
        due = asyncio.Event()
        loop.call_later(at * PACE_S, due.set)
        pieces += [due, _http_chunk(event)]
    match fault:
        case Fault.DIES:
            return Script(tuple(pieces), end=End.CLOSE)
        case Fault.STALLS:
            return Script(tuple(pieces), end=End.HANG)
        case _:
            return Script((*pieces, _LAST))


@asynccontextmanager
async def engines(number: int) -> AsyncIterator[tuple[PacedEngine, ...]]:
    """So many engines, listening."""
    made = tuple(PacedEngine() for _ in range(number))
    async with AsyncExitStack() as listening:
        for engine in made:
            await listening.enter_async_context(engine.backend)
        yield made


def answered_once(*asked: PacedEngine) -> bool:
    """Whether no request reached engines more than once, all of them together."""
    ids = [request_id for engine in asked for request_id in engine.answered]
    return len(ids) == len(set(ids))
