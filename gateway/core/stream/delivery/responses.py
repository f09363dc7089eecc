"""Reasoning left out of the streams of `/v1/responses`: its items, all their events, and their places in the numbering.

Inside the edit of one stream, for ``drop`` and ``side``.  Until the first reasoning item everything comes back byte for
byte; after it only the numbers of an event are others, and the response at the end holds the items that are left.
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

REASONING: Final = b'"reasoning"'
_DELTAS: Final = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_ADDED: Final = "response.output_item.added"
_KIND: Final = "response.reasoning"


class _Item(Struct, gc=False):
    type: str = ""


class _Event(Struct, gc=False):
    type: str = ""
    output_index: int | None = None
    sequence_number: int | None = None
    item: _Item | None = None
    delta: Raw = NULL
    response: Raw = NULL


_EVENT: Final = json.Decoder(_Event)


class ResponsesDelivery:
    """The events of one stream; owner: its edit."""

    held = b""

    def __init__(self, take: TakeReasoning) -> None:
        self._take = take
        self._items = Numbering()
        self._gone = 0  # events that were left out

    def at_break(self) -> bytes:
        """Nothing was begun."""
        return b""

    def begin(self, first: bytes) -> None:
        """Nothing to remember."""

    def event(self, event: bytes) -> bytes:
        """One whole event in, one or none out."""
        if not self._gone and b"reasoning" not in event:
            return event
        frame = take_apart(event)
        if frame is None:
            return event
        try:
            seen = _EVENT.decode(frame.data)
            if self._leaves_out(seen):
                self._gone += 1
                return b""
            changes = self._changes(seen)
            if not changes:
                return event
            return frame.with_data(encode(FIELDS.decode(frame.data) | changes))
        except UNREADABLE:
            return event

    def _leaves_out(self, seen: _Event) -> bool:
        at = seen.output_index
        if seen.type in _DELTAS:
            delta = bytes(seen.delta)
            if delta.startswith(b'"') and len(delta) > 2:
                self._take(0, delta[1:-1])
        if at is not None and seen.item is not None and seen.item.type == "reasoning" and seen.type == _ADDED:
            return self._items.leave_out(at)
        if at is not None and at in self._items:
            return True
        return seen.type.startswith(_KIND) or (seen.item is not None and seen.item.type == "reasoning")

    def _changes(self, seen: _Event) -> Fields:
        changes: Fields = {}
        if self._gone and seen.sequence_number is not None:
            changes["sequence_number"] = Raw(encode(seen.sequence_number - self._gone))
        if self._items and seen.output_index is not None:
            changes["output_index"] = Raw(encode(self._items.new(seen.output_index)))
        if seen.response != NULL:
            response = FIELDS.decode(seen.response)
            without = without_reasoning(response)
            if without is not response:
                changes["response"] = Raw(encode(without))
        return changes


def without_reasoning(response: Fields) -> Fields:
    """A response object without its reasoning; the same object where it has none."""
    items = [Raw(it) for it in _RAWS.decode(response["output"])] if is_given(response, "output") else []
    kept = [item for item in items if _ITEM.decode(item).type != "reasoning"]
    messages = {"output_messages": NULL} if is_given(response, "output_messages") else {}
    if len(kept) == len(items) and not messages:
        return response
    return response | {"output": Raw(encode(kept))} | messages


def reasoning_of(response: Fields) -> list[bytes]:
    """The reasoning texts of a response object, as insides of JSON strings."""
    texts: list[bytes] = []
    if not is_given(response, "output"):
        return texts
    for item in ENTRIES.decode(response["output"]):
        if bytes(item.get("type", NULL)) != REASONING:
            continue
        for name in ("content", "summary"):
            parts = ENTRIES.decode(item[name]) if is_given(item, name) else []
            texts += [text for part in parts if (text := text_inside(part, "text"))]
    return texts


_RAWS: Final = json.Decoder(list[Raw])
_ITEM: Final = json.Decoder(_Item)
