"""The reasoning that goes on a stream of its own (``side``): its events, and those that are kept for who comes late.

Filled by the edit of the main stream, read by the shell of the side streams.  Events look like chunks of chat with
nothing but reasoning in them, whatever dialect the main stream speaks.  Bounded: the oldest events go first.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec
from msgspec import Raw

from gateway.core.stream.delivery.frame import FIELDS, NULL, UNREADABLE, Fields, encode, quoted
from gateway.core.stream.edit import event_data, split_events

_INNER: Final = ("response", "message")
_OBJECT: Final = Raw(b'"chat.completion.chunk"')


class SideEvents:
    """Makes the events of one side stream.  Owner of the head that they share."""

    def __init__(self) -> None:
        self._head: Fields = {"object": _OBJECT}

    def begin(self, first: bytes) -> None:
        """Take id, time and model from the first event of the main stream, or from its one body."""
        for event in split_events(first):
            try:
                fields = FIELDS.decode(event_data(event) or event)
                for name in _INNER:
                    if name in fields:
                        fields = FIELDS.decode(fields[name])
            except UNREADABLE:
                continue
            created = fields.get("created", fields.get("created_at", Raw(b"0")))
            self._head = {
                "id": fields.get("id", quoted()).copy(),  # copies: the originals keep the whole body in memory
                "object": _OBJECT,
                "created": created.copy(),
                "model": fields.get("model", quoted()).copy(),
            }
            return

    def event(self, index: int, inside: bytes) -> bytes:
        """The event with a piece of reasoning of the choice ``index``: the inside of a JSON string."""
        delta = Raw(encode({"reasoning": quoted(inside)}))
        choice = {"index": Raw(encode(index)), "delta": delta, "finish_reason": NULL}
        return b"data: " + msgspec.json.encode(self._head | {"choices": Raw(encode([choice]))}) + b"\n\n"


class SideBuffer:
    """The latest events of one side stream, up to ``limit_bytes``."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._events: deque[bytes] = deque()
        self.size_bytes = 0
        self.gone = 0

    def add(self, event: bytes) -> None:
        """Keep ``event``; the oldest ones go when that is too much."""
        self._events.append(event)
        self.size_bytes += len(event)
        while self.size_bytes > self._limit_bytes:
            self.size_bytes -= len(self._events.popleft())
            self.gone += 1

    def kept(self) -> bytes:
        """What a late reader gets first; a comment says what it comes too late for."""
        late = b": %d earlier events are not kept any more\n\n" % self.gone if self.gone else b""
        return late + b"".join(self._events)
