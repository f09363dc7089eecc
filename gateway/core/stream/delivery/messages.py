"""Reasoning left out of the streams of `/v1/messages`: thinking blocks, and their places in the numbering.

Inside the edit of one stream, for ``drop`` and ``side``.  Until the first thinking block everything comes back byte for
byte; after it only the ``index`` of a block's events is another.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct, json

from gateway.core.stream.delivery.arrange import TakeReasoning
from gateway.core.stream.delivery.frame import (
    ENTRIES,
    FIELDS,
    NULL,
    UNREADABLE,
    Fields,
    encode,
    is_given,
    take_apart,
    text_inside,
)
from gateway.core.stream.delivery.numbering import Numbering

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_THINKING_TYPES: Final = frozenset({b'"thinking"', b'"redacted_thinking"'})


class _Block(Struct, gc=False):
    type: str = ""


class _Delta(Struct, gc=False):
    thinking: Raw = NULL


class _Event(Struct, gc=False):
    type: str = ""
    index: int | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None


_EVENT: Final = json.Decoder(_Event)


class MessagesDelivery:
    """The events of one stream; owner: its edit."""

    held = b""

    def __init__(self, take: TakeReasoning) -> None:
        self._take = take
        self._blocks = Numbering()

    def at_break(self) -> bytes:
        """Nothing was begun."""
        return b""

    def begin(self, first: bytes) -> None:
        """Nothing to remember."""

    def event(self, event: bytes) -> bytes:
        """One whole event in, one or none out."""
        if not self._blocks and b"thinking" not in event:
            return event
        frame = take_apart(event)
        if frame is None:
            return event
        try:
            seen = _EVENT.decode(frame.data)
        except UNREADABLE:
            return event
        if seen.index is None or not seen.type.startswith("content_block_"):
            return event
        if seen.content_block is not None and seen.content_block.type in _THINKING:
            self._blocks.leave_out(seen.index)
        if seen.index in self._blocks:
            self._take_from(seen.delta)
            return b""
        if not self._blocks:
            return event
        return frame.with_data(encode(FIELDS.decode(frame.data) | {"index": Raw(encode(self._blocks.new(seen.index)))}))

    def _take_from(self, delta: _Delta | None) -> None:
        text = b"" if delta is None else text_inside({"thinking": delta.thinking}, "thinking")
        if text:
            self._take(0, text)


def without_thinking(message: Fields) -> Fields:
    """A message object without its thinking blocks; the same object where it has none."""
    if not is_given(message, "content") or not bytes(message["content"]).startswith(b"["):
        return message
    blocks = ENTRIES.decode(message["content"])
    kept = [block for block in blocks if bytes(block.get("type", NULL)) not in _THINKING_TYPES]
    return message if len(kept) == len(blocks) else message | {"content": Raw(encode(kept))}


def thinking_of(message: Fields) -> list[bytes]:
    """The thinking of a message object, as insides of JSON strings."""
    if not is_given(message, "content") or not bytes(message["content"]).startswith(b"["):
        return []
    blocks = ENTRIES.decode(message["content"])
    return [text for block in blocks if (text := text_inside(block, "thinking"))]
