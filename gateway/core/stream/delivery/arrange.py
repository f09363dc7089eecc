"""The arrangements of chat: what a choice's delta or message becomes under each mode.

Inside the edits of chat and completions, the same for streams and whole bodies.  An arrangement returns None for a
choice that stays as it is, else the deltas that take its place, in order; none of them: nothing is left to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from gateway.core.stream.delivery.choice import (
    CONTENT,
    REASONING_NAMES,
    TEXT_NAMES,
    TOOL_NAMES,
    Choice,
    Piece,
)
from gateway.core.stream.delivery.frame import NULL, Fields, named, quoted
from gateway.core.stream.delivery.mode import Channel
from gateway.core.stream.delivery.plain import Plain

_OPEN: Final = b"<think>"
_CLOSE: Final = b"</think>"

TakeReasoning = Callable[[int, bytes], None]
"""Gets the reasoning that the client does not: choice, and the inside of a JSON string."""


class Part(NamedTuple):
    """A delta or message; ``name`` names its event, "" for none."""

    inner: Fields
    name: str = ""


class Arrangement(Protocol):
    """One mode; owner: one answer's edit.  ``hides``: reasoning is taken out, and what tells its tokens with it."""

    hides: bool

    def concerns(self, event: bytes) -> bool:
        """Whether an event, without tags in its text, may have to be arranged."""
        ...

    def plain(self, event: bytes, it: Plain, *, channel: Channel) -> bytes:
        """What takes the place of an event that is plain; its text belongs to ``channel``, whatever its name."""
        ...

    def arrange(self, choice: Choice) -> list[Part] | None:
        """What takes the place of ``choice``'s own; see the module."""
        ...

    def last(self, index: int, piece: Piece) -> Part | None:
        """``piece`` by itself, should it be the last that comes; changes nothing."""
        ...

    def at_end(self) -> list[tuple[int, Part]]:
        """What is still owed to choices that never ended."""
        ...


class FieldNames:
    """``reasoning``, ``reasoning_content``, ``both``: the field under the names that the client knows."""

    hides = False

    def __init__(self, *names: str) -> None:
        self._names = names
        self._needle = b'"reasoning_content"' if names == ("reasoning",) else b'"reasoning'

    def concerns(self, event: bytes) -> bool:
        """Only reasoning is renamed."""
        return self._needle in event

    def plain(self, event: bytes, it: Plain, *, channel: Channel) -> bytes:
        """Each name with the same text."""
        if channel is Channel.CONTENT or self._names == (it.channel.value,):
            return event
        first, *more = [name.encode("ascii") for name in self._names]
        return it.doubled(first, more[0]) if more else it.renamed(first)

    def arrange(self, choice: Choice) -> list[Part] | None:
        """Each name with the same text."""
        inner = choice.inner
        if not choice.split:
            there = tuple(name for name in REASONING_NAMES if name in inner)
            if not there or there == self._names:
                return None
            raw = inner["reasoning"] if inner.get("reasoning", NULL) != NULL else inner.get("reasoning_content", NULL)
            return [Part(_replaced(inner, REASONING_NAMES, dict.fromkeys(self._names, raw)))]
        reasoning, content = choice.text(Channel.REASONING), choice.text(Channel.CONTENT)
        new = dict.fromkeys(self._names, quoted(reasoning)) if reasoning else {}
        inner = _replaced(inner, REASONING_NAMES, new)
        return [Part(_with_content(inner, content, whole=choice.key == "message"))]

    def last(self, index: int, piece: Piece) -> Part | None:  # noqa: ARG002  (protocol)
        """Under its names."""
        names = self._names if piece.channel is Channel.REASONING else (CONTENT,)
        return Part(dict.fromkeys(names, quoted(piece.inside)))

    def at_end(self) -> list[tuple[int, Part]]:
        """Nothing is owed."""
        return []


class Hidden:
    """``drop`` and ``side``: content only; ``take`` gets the reasoning."""

    hides = True

    def __init__(self, take: TakeReasoning) -> None:
        self._take = take

    def concerns(self, event: bytes) -> bool:
        """Only reasoning is taken out."""
        return b'"reasoning' in event

    def plain(self, event: bytes, it: Plain, *, channel: Channel) -> bytes:
        """Content as it is, reasoning not at all."""
        if channel is Channel.CONTENT:
            return event
        self._take(it.index, it.inside)
        return b""

    def arrange(self, choice: Choice) -> list[Part] | None:
        """Without reasoning; a delta that had nothing else is none."""
        if not choice.split and not choice.names_reasoning:
            return None
        for piece in choice.pieces:
            if piece.channel is Channel.REASONING:
                self._take(choice.index, piece.inside)
        inner = _replaced(choice.inner, REASONING_NAMES, {})
        if choice.split:
            inner = _with_content(inner, choice.text(Channel.CONTENT), whole=choice.key == "message")
        return [Part(inner)]

    def last(self, index: int, piece: Piece) -> Part | None:  # noqa: ARG002  (protocol)
        """Content alone."""
        return None if piece.channel is Channel.REASONING else Part({CONTENT: quoted(piece.inside)})

    def at_end(self) -> list[tuple[int, Part]]:
        """Nothing is owed."""
        return []


class Named:
    """``events``: a name before each event that has text or a tool call; a delta with several is several events."""

    hides = False

    def concerns(self, event: bytes) -> bool:
        """Every event that has choices."""
        return b'"choices"' in event

    def plain(self, event: bytes, it: Plain, *, channel: Channel) -> bytes:
        """The event under its name."""
        return named(channel, event if channel is it.channel else it.renamed(b"reasoning"))

    def arrange(self, choice: Choice) -> list[Part] | None:
        """One part for each piece and for the tool call; what else there is goes with the first."""
        inner, pieces, tool = choice.inner, choice.pieces, choice.has_tool
        if not choice.split and len(pieces) + tool <= 1:
            name = pieces[0].channel if pieces else Channel.TOOL if tool else ""
            return [Part(inner, name)] if name else None
        names = [name for name in REASONING_NAMES if name in inner] or ["reasoning"]
        parts = []
        for piece in pieces:
            keys = names if piece.channel is Channel.REASONING else [CONTENT]
            parts.append(Part(dict.fromkeys(keys, quoted(piece.inside)), piece.channel))
        if tool:
            parts.append(Part({key: inner[key] for key in TOOL_NAMES if key in inner}, Channel.TOOL))
        rest = {key: value for key, value in inner.items() if key not in TEXT_NAMES and key not in TOOL_NAMES}
        if not parts:
            return [Part(rest)]
        return [Part(rest | parts[0].inner, parts[0].name), *parts[1:]]

    def last(self, index: int, piece: Piece) -> Part | None:  # noqa: ARG002  (protocol)
        """Under its name."""
        key = "reasoning" if piece.channel is Channel.REASONING else CONTENT
        return Part({key: quoted(piece.inside)}, piece.channel)

    def at_end(self) -> list[tuple[int, Part]]:
        """Nothing is owed."""
        return []


class Inlined:
    """``tags``: reasoning inside content, between tags of its own for each choice."""

    hides = False

    def __init__(self) -> None:
        self._open: set[int] = set()

    def concerns(self, event: bytes) -> bool:
        """Reasoning, and everything while a tag is open."""
        return bool(self._open) or b'"reasoning' in event

    def plain(self, event: bytes, it: Plain, *, channel: Channel) -> bytes:
        """The text as content, a tag before it where the channel changes."""
        tag = self._turn(it.index, channel)
        return event if it.channel is Channel.CONTENT and not tag else it.renamed(b"content", before=tag)

    def arrange(self, choice: Choice) -> list[Part] | None:
        """The pieces in one text; the closing tag comes with what is no reasoning, at the latest with the end."""
        index = choice.index
        was_open = index in self._open
        text = b"".join(self._turn(index, piece.channel) + piece.inside for piece in choice.pieces)
        if index in self._open and (choice.finished or choice.has_tool or choice.key == "message"):
            self._open.discard(index)
            text += _CLOSE
        if not (was_open or choice.split or choice.names_reasoning):
            return None
        inner = _replaced(choice.inner, REASONING_NAMES, {})
        return [Part(_with_content(inner, text, whole=choice.key == "message"))]

    def _turn(self, index: int, channel: Channel) -> bytes:
        """The tag that has to go before text of ``channel``, which is then open or closed."""
        tag = self._tag(index, channel)
        if tag == _OPEN:
            self._open.add(index)
        elif tag:
            self._open.discard(index)
        return tag

    def _tag(self, index: int, channel: Channel) -> bytes:
        if channel is Channel.REASONING:
            return b"" if index in self._open else _OPEN
        return _CLOSE if index in self._open else b""

    def last(self, index: int, piece: Piece) -> Part | None:
        """With the tag before it."""
        return Part({CONTENT: quoted(self._tag(index, piece.channel), piece.inside)})

    def at_end(self) -> list[tuple[int, Part]]:
        """A closing tag for each choice that is inside reasoning."""
        owed = [(index, Part({CONTENT: quoted(_CLOSE)})) for index in sorted(self._open)]
        self._open.clear()
        return owed


def _replaced(fields: Fields, names: tuple[str, ...], new: Fields) -> Fields:
    """``fields`` with ``new`` in the place of the first of ``names``, at the end where none is there."""
    out: Fields = {}
    placed = False
    for key, value in fields.items():
        if key not in names:
            out[key] = value
        elif not placed:
            out.update(new)
            placed = True
    return out if placed else out | new


def _with_content(inner: Fields, text: bytes, *, whole: bool) -> Fields:
    """``inner`` with that content; without any, a delta has no such field and a message has it null."""
    if text:
        return inner | {CONTENT: quoted(text)}
    if whole:
        return inner | {CONTENT: NULL}
    return {key: value for key, value in inner.items() if key != CONTENT or bytes(value) == b'""'}
