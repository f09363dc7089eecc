"""What the mock engine reads of a request: framing, the chat fields that change bytes, the pace in the prompt.

Pure parsing; the clockwork that answers stands in `mock_engine.py`.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct):
    """One message of the prompt; only its text matters here."""

    content: str = ""


class StreamOptions(msgspec.Struct):
    """The part of `stream_options` that changes bytes."""

    include_usage: bool | None = False


class ChatCall(msgspec.Struct):
    """The fields of a chat request that the mock honours; all others are ignored."""

    messages: list[Message]
    stream: bool | None = False
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream_options: StreamOptions | None = None


class Pace(msgspec.Struct, frozen=True):
    """How fast one request is answered, in milliseconds."""

    pace_ms: float = 25.0
    first_ms: float = 0.0
    grid_ms: float = 1.0


def read_pace(prompt: str) -> Pace:
    """The pace written in a prompt as `name=number` words; other words are ignored."""
    named = dict(word.split("=", 1) for word in prompt.split() if "=" in word)
    return msgspec.convert(named, Pace, strict=False)


def content_length(head: bytes) -> int:
    """The Content-Length of a request head; 0 when there is none (a chunked request body is not supported)."""
    lowered = head.lower()
    at = lowered.find(b"\r\ncontent-length:")
    if at < 0:
        return 0
    start = at + len(b"\r\ncontent-length:")
    return int(lowered[start : lowered.index(b"\r\n", start)])
