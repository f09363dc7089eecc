"""Recorded HTTP exchanges with real engines: loader, and just enough HTTP to take them apart.

`tests/data/recordings/README.md` describes the two formats.  De-chunking here is for tests that need the decoded
body with its times; it trusts the recordings and is no parser for anything else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from gateway.core.routing.endpoints import ENDPOINTS
from gateway.core.stream.summary import Dialect, RequestShape

FOLDER: Final = Path(__file__).parents[1] / "data" / "recordings"

# What stands in for the head of an answer of which only the last reads were kept.
STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\n"
    b"date: Tue, 01 Dec 2026 01:51:48 GMT\r\n"
    b"server: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n"
    b"\r\n"
)


class RecordedEnd(StrEnum):
    """How an exchange ended."""

    COMPLETE = "complete"  # as its framing promised
    EOF = "eof"  # the server closed inside the answer, or before it
    SILENCE = "silence"  # nothing more came until the client's own time-out
    CLIENT_CLOSED = "client_closed"


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that one read of the socket gave, so many seconds after the request was sent."""

    at_s: float
    data: bytes


@dataclass(frozen=True)
class Recording:
    """One HTTP exchange; ``name`` is the folder and the file without its suffix."""

    name: str
    method: str
    path: str
    request_body: Any  # the decoded JSON value, the raw text where it is none, None without a body
    note: str
    reads: tuple[Read, ...]
    end: RecordedEnd

    def __str__(self) -> str:
        return self.name

    @cached_property
    def raw(self) -> bytes:
        """Everything that the server sent."""
        return b"".join(read.data for read in self.reads)

    @property
    def has_head(self) -> bool:
        return self.raw.startswith(b"HTTP/1.1 ")

    @property
    def is_tail(self) -> bool:
        """Whether only the last reads of an answer were kept."""
        return bool(self.reads) and not self.has_head

    def with_head(self) -> Recording:
        """Return an exchange with a head: this one, or this one with a plain stream head before it."""
        if not self.is_tail:
            return self
        first = replace(self.reads[0], data=STREAM_HEAD)
        return replace(self, reads=(first, *self.reads))

    @cached_property
    def head(self) -> bytes:
        """The head, blank line included; empty where there is none."""
        return self.raw[: self.raw.index(b"\r\n\r\n") + 4] if self.has_head else b""

    @property
    def status(self) -> int:
        """The HTTP status; 200 for a tail, whose head is known to have said so, 0 where nothing came."""
        if self.has_head:
            return int(self.head.split(b" ", 2)[1])
        return 200 if self.is_tail else 0

    @cached_property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}

    @property
    def is_chunked(self) -> bool:
        return self.is_tail or self.headers.get("transfer-encoding", "") == "chunked"

    @property
    def is_event_stream(self) -> bool:
        return self.is_tail or self.headers.get("content-type", "").startswith("text/event-stream")

    @cached_property
    def body_reads(self) -> tuple[Read, ...]:
        """The decoded body as it came: without head and chunk framing, with the time of each read; none is empty."""
        return _decode_body(self)

    @cached_property
    def body(self) -> bytes:
        return b"".join(read.data for read in self.body_reads)

    @property
    def dialect(self) -> Dialect | None:
        """As the gateway's own map has it; None where that has no such path."""
        endpoint = ENDPOINTS.get(self.path)
        return endpoint.dialect if endpoint is not None else None

    @property
    def shape(self) -> RequestShape:
        """What the request asked for."""
        body = self.request_body if isinstance(self.request_body, dict) else {}
        options = body.get("stream_options") or {}
        return RequestShape(
            stream=body.get("stream") is True,
            n=body.get("n") or 1,
            logprobs=bool(body.get("logprobs")) or "logprobs" in str(body.get("include")),
            token_ids=bool(body.get("return_token_ids")),
            continuous_usage=bool(options.get("continuous_usage_stats")),
        )

    @cached_property
    def last_usage(self) -> dict[str, Any] | None:
        """The last usage object of the body, found by a plain JSON decoder; None where there is none."""
        return _last_usage(self)


def names() -> list[str]:
    """Return the name of every recording."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.jsonl"))


def load(name: str) -> Recording:
    """Return the recording ``name``, for example ``vllm-0.32-cpu/chat-stream-plain``."""
    path = FOLDER / f"{name}.jsonl"
    first, *reads, last = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    if "note" in first:
        return _load_cpu(name, first, reads, last)
    return _load_h200(name, first, reads)


def load_all() -> list[Recording]:
    """Return every recording, by name."""
    return [load(name) for name in names()]


def streams() -> list[Recording]:
    """Return every recording whose answer is an event stream."""
    return [recording for recording in load_all() if recording.is_event_stream]


def _load_cpu(name: str, first: dict[str, Any], reads: list[dict[str, Any]], last: dict[str, Any]) -> Recording:
    request = first["request"]
    words = last["end"]
    ends = {
        "complete": RecordedEnd.COMPLETE,
        "eof": RecordedEnd.EOF,
        "error: TimeoutError": RecordedEnd.SILENCE,
        "client closed": RecordedEnd.CLIENT_CLOSED,
    }
    return Recording(
        name=name,
        method=request["method"],
        path=request["path"],
        request_body=request.get("body", request.get("body_text")),
        note=first["note"],
        reads=tuple(Read(read["t"], read["text"].encode()) for read in reads),
        end=next(end for beginning, end in ends.items() if words.startswith(beginning)),
    )


def _load_h200(name: str, first: dict[str, Any], reads: list[list[Any]]) -> Recording:
    return Recording(
        name=name,
        method="POST",
        path=first["path"],
        request_body=first["request"],
        note="",
        reads=tuple(Read(at_s, text.encode("utf-8", "surrogateescape")) for at_s, text in reads),
        end=RecordedEnd.CLIENT_CLOSED if name.endswith("-cut") else RecordedEnd.COMPLETE,
    )


def _decode_body(recording: Recording) -> tuple[Read, ...]:
    to_skip = len(recording.head)
    bodies: list[Read] = []
    held = b""
    in_chunk = 0  # bytes of the chunk's data that are still to come, its CRLF included
    for read in recording.reads:
        data = read.data[to_skip:]
        to_skip = max(0, to_skip - len(read.data))
        if not recording.is_chunked:
            bodies.append(Read(read.at_s, data))
            continue
        held += data
        decoded = b""
        while held:
            if in_chunk == 0:
                match = re.match(rb"([0-9A-Fa-f]+)\r\n", held)
                if match is None:
                    break
                in_chunk = int(match[1], 16) + 2
                held = held[match.end() :]
            piece, held = held[:in_chunk], held[in_chunk:]
            in_chunk -= len(piece)
            decoded += piece[: len(piece) - max(0, 2 - in_chunk)]
        bodies.append(Read(read.at_s, decoded))
    return tuple(read for read in bodies if read.data)


def _last_usage(recording: Recording) -> dict[str, Any] | None:
    if not recording.is_event_stream:
        values = [json.loads(recording.body)] if recording.body.startswith(b"{") else []
    else:
        payloads = re.findall(rb"^data: (\{.*)$", recording.body, re.MULTILINE)
        values = [json.loads(payload) for payload in payloads]
    usages = [value.get("usage") or (value.get("response") or {}).get("usage") for value in values]
    return next((usage for usage in reversed(usages) if usage), None)
