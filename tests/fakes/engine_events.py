"""Events as engines send them, built field by field: for tests that need a stream of their own making."""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.core.stream.summary import Dialect, RequestShape, StreamSummary
from gateway.core.stream.tap import Tap

DONE: Final = b"data: [DONE]\n\n"
STREAM: Final = RequestShape(stream=True)
ENDED_AT: Final = 100.0


def event(value: dict[str, Any], *, name: str = "") -> bytes:
    """Return one server-sent event with a JSON value as its data."""
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(value, separators=(',', ':'), ensure_ascii=False)}\n\n".encode()


def chat(*, index: int = 0, finish: str | None = None, usage: dict[str, Any] | None = None, **delta: Any) -> bytes:
    """Return a chat event of one choice; keywords are the delta."""
    value: dict[str, Any] = {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}
    return event(value if usage is None else {**value, "usage": usage})


def role(index: int = 0) -> bytes:
    """Return the first event of a choice."""
    return chat(index=index, role="assistant", content="")


def text(content: str, *, index: int = 0, finish: str | None = None) -> bytes:
    """Return a completions event of one choice."""
    return event({"choices": [{"index": index, "text": content, "finish_reason": finish}]})


def usage(completion: int, *, prompt: int = 7, reasoning: int | None = None, **more: Any) -> bytes:
    """Return the trailing usage event of chat and completions."""
    counts: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if reasoning is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return event({"choices": [], "usage": counts, **more})


def typed(kind: str, **fields: Any) -> bytes:
    """Return an event of Responses or Messages: the type stands in its name and in its data."""
    return event({"type": kind, **fields}, name=kind)


def summarise(
    *events: bytes,
    dialect: Dialect = Dialect.CHAT,
    shape: RequestShape = STREAM,
    step_s: float = 1.0,
    max_event_bytes: int = 1 << 20,
) -> StreamSummary:
    """Feed events to a tap, one each ``step_s`` seconds from 0, and return the summary of the stream."""
    tap = Tap(dialect, shape, max_event_bytes=max_event_bytes)
    for number, piece in enumerate(events):
        tap.feed(piece, number * step_s)
    return tap.close(ENDED_AT)
