"""Delivery in the streams of `/v1/chat/completions` and `/v1/completions`.

Inside the edit of one stream.  Each event is taken apart only as far as its mode needs; one that the mode does not mean
(usage, errors, ``[DONE]``, comments, other choices) comes back byte for byte.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from gateway.core.stream.delivery.arrange import Arrangement, Part
from gateway.core.stream.delivery.choice import (
    TOKEN_NAMES,
    Choice,
    Splitters,
    close_choice,
    content_text,
    open_choice,
)
from gateway.core.stream.delivery.frame import (
    ENTRIES,
    FIELDS,
    NULL,
    UNREADABLE,
    Fields,
    Frame,
    encode,
    is_given,
    named,
    take_apart,
)
from gateway.core.stream.delivery.mode import Channel, ThinkTags
from gateway.core.stream.delivery.plain import Plain, plain
from gateway.core.stream.edit import DONE_NEEDLE, event_data, split_events

_HEAD: Final = ("id", "object", "created", "model")
_OF_THE_END: Final = (*TOKEN_NAMES, "finish_reason", "stop_reason")


class ChatDelivery:
    """The events of one stream; owner: its edit.

    ``key``: where a choice has its text, ``delta`` or, in completions, ``text``.  ``held``: whole events with what may
    become a tag, as they would have to be told should nothing follow.
    """

    def __init__(self, arrangement: Arrangement, *, key: str, tags: ThinkTags | None) -> None:
        self._arrangement = arrangement
        self._key = key
        self._splitters = None if tags is None else Splitters(tags)
        self._head: Fields = {}
        self.held = b""

    def begin(self, first: bytes) -> None:
        """Remember what stands at the head of each event, for those that have to be made."""
        for event in split_events(first):
            try:
                fields = FIELDS.decode(event_data(event))
            except UNREADABLE:
                continue
            self._head = {name: fields[name] for name in _HEAD if name in fields}
            return

    def event(self, event: bytes) -> bytes:
        """One whole event in, none, one or several out."""
        if self._splitters is None and not self._arrangement.concerns(event):
            return event
        it = plain(event) if self._key == "delta" else None
        if it is not None:
            channel = self._channel_of(it)
            if channel is not None:
                return self._arrangement.plain(event, it, channel=channel)
        return self._taken_apart(event)

    def at_break(self) -> bytes:
        """What is held back, and the closing tag of each choice whose reasoning is between tags; never its end."""
        return self._end_before(b"")

    def _channel_of(self, it: Plain) -> Channel | None:
        if self._splitters is None or it.channel is Channel.REASONING:
            return it.channel
        return self._splitters.channel_of(it.index, it.inside)

    def _taken_apart(self, event: bytes) -> bytes:
        """Any event but a plain one."""
        frame = take_apart(event)
        if frame is None:
            return event
        try:
            chunk = FIELDS.decode(frame.data)
            choices = [open_choice(fields, self._key) for fields in ENTRIES.decode(chunk["choices"])]
            texts = [content_text(choice) for choice in choices] if self._splitters is not None else []
        except KeyError:
            return self._end_before(event)  # an error
        except UNREADABLE:
            return self._end_before(event) if frame.data == DONE_NEEDLE else event
        if self._splitters is not None:
            for choice, text in zip(choices, texts, strict=True):
                self._splitters.split(choice, text, over=False)
        out = self._arranged(event, frame, chunk=chunk, choices=choices)
        if self._splitters is not None:
            self._note_held(self._splitters)
        return out

    def _arranged(self, event: bytes, frame: Frame, *, chunk: Fields, choices: list[Choice]) -> bytes:
        arranged = [(choice, self._arrangement.arrange(choice)) for choice in choices]
        if all(parts is None for _, parts in arranged):
            return event
        if len(arranged) == 1:
            choice, parts = arranged[0]
            if parts is not None and len(parts) == 1 and parts[0].inner is choice.inner:
                return named(parts[0].name, event)  # the payload stays as it is
            return self._series(frame, chunk, choice=choice, parts=parts)
        if any(part.name for _, parts in arranged for part in parts or ()):
            return b"".join(
                self._series(frame, _of_one(chunk, last=choice is choices[-1]), choice=choice, parts=parts)
                for choice, parts in arranged
            )
        return self._together(frame, chunk, arranged)

    def _series(self, frame: Frame, chunk: Fields, *, choice: Choice, parts: list[Part] | None) -> bytes:
        """The events of one choice: a part each; the end, usage and tokens go with the last."""
        if parts is None:
            return frame.with_data(_chunk(chunk, [choice.fields]))
        *earlier, last = parts
        made = [
            _named(part, Frame(frame.before, b"", b"\n\n").with_data(_chunk(_of_one(chunk, last=False), [fields])))
            for part in earlier
            for fields in [close_choice(choice, part.inner) | _nothing_of_the_end(choice)]
        ]
        if made or not self._vanishes(choice, last, chunk):
            made.append(_named(last, frame.with_data(_chunk(chunk, [self._closed(choice, last)]))))
        return b"".join(made)

    def _together(self, frame: Frame, chunk: Fields, arranged: list[tuple[Choice, list[Part] | None]]) -> bytes:
        """One event with all its choices but those that have nothing left to tell."""
        kept: list[Fields] = []
        for choice, parts in arranged:
            if parts is None:
                kept.append(choice.fields)
            elif not self._vanishes(choice, parts[0], chunk):
                kept.append(self._closed(choice, parts[0]))
        return frame.with_data(_chunk(chunk, kept)) if kept else b""

    def _closed(self, choice: Choice, part: Part) -> Fields:
        fields = close_choice(choice, part.inner)
        if self._arrangement.hides and choice.has_reasoning:
            return fields | {name: NULL for name in TOKEN_NAMES if name in fields}
        return fields

    def _vanishes(self, choice: Choice, part: Part, chunk: Fields) -> bool:
        """Whether nothing is left of the choice that anybody waits for."""
        if is_given(chunk, "usage") or not choice.says_nothing(part.inner):
            return False
        return self._arrangement.hides or (choice.split and not choice.has_tokens)

    def _note_held(self, splitters: Splitters) -> None:
        self.held = b""
        for index, piece in splitters.held:
            part = self._arrangement.last(index, piece)
            if part is not None:
                self.held += self._made(index, part)

    def _end_before(self, event: bytes) -> bytes:
        """No text comes any more: what is held or owed goes out before ``event``."""
        out = b""
        if self._splitters is not None:
            for index, piece in self._splitters.take_held():
                choice = Choice({}, key=self._key, inner={}, index=index)
                choice.pieces, choice.split = [piece], True
                for part in self._arrangement.arrange(choice) or ():
                    if part.inner:
                        out += self._made(index, part)
            self.held = b""
        for index, part in self._arrangement.at_end():
            out += self._made(index, part)
        return out + event

    def _made(self, index: int, part: Part) -> bytes:
        """An event of our own."""
        fields: Fields = {"index": Raw(encode(index)), "finish_reason": NULL}
        choice = Choice(fields, key=self._key, inner={}, index=index)
        data = _chunk(self._head, [close_choice(choice, part.inner)])
        return _named(part, b"data: " + data + b"\n\n")


def _named(part: Part, event: bytes) -> bytes:
    return named(part.name, event) if part.name else event


def _chunk(chunk: Fields, choices: list[Fields]) -> bytes:
    return msgspec.json.encode(chunk | {"choices": choices})


def _of_one(chunk: Fields, *, last: bool) -> Fields:
    """A chunk's fields for one of the events that it becomes: what counts once goes with the last."""
    return chunk if last else {name: chunk[name] for name in _HEAD if name in chunk}


def _nothing_of_the_end(choice: Choice) -> Fields:
    return {name: NULL for name in _OF_THE_END if name in choice.fields}
