"""One choice of a chat chunk or body, taken apart for an edit: which text it has in which channel, and what else.

Inside the edits of chat and completions.  Text stays JSON text unless tags have to be found in it.  Must not decide
what a client gets: the arrangements do.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Raw

from gateway.core.stream.delivery.frame import (
    FIELDS,
    INDEX,
    NULL,
    WORD,
    Fields,
    encode,
    is_given,
    quoted,
    text_inside,
)
from gateway.core.stream.delivery.mode import Channel, ThinkTags
from gateway.core.stream.delivery.split import TagSplitter

REASONING_NAMES: Final = ("reasoning", "reasoning_content")
CONTENT: Final = "content"
TEXT_NAMES: Final = frozenset({*REASONING_NAMES, CONTENT})
TOOL_NAMES: Final = ("tool_calls", "function_call")
TOKEN_NAMES: Final = ("logprobs", "token_ids")
"""What tells the tokens of a choice: with reasoning hidden it would tell the reasoning."""

_EMPTY: Final = frozenset({b"null", b'""', b"[]"})
_MOST_CHOICES: Final = 65_536


class Piece(NamedTuple):
    """Text of one channel: the inside of a JSON string, never empty."""

    channel: Channel
    inside: bytes


class Choice:
    """A choice as it came, and its pieces in order; owner: the edit, for one event or body.

    ``split``: the pieces are not those that the fields say, for tags were taken out, held back or given back.
    """

    __slots__ = ("fields", "index", "inner", "key", "pieces", "split")

    def __init__(self, fields: Fields, *, key: str, inner: Fields, index: int) -> None:
        self.fields = fields
        self.key = key
        self.inner = inner
        self.index = index
        self.split = False
        self.pieces = pieces_of(inner)

    @property
    def finished(self) -> bool:
        """Whether the choice ends with this event."""
        return is_given(self.fields, "finish_reason")

    @property
    def has_tool(self) -> bool:
        """Whether a tool call, or a part of one, is in it."""
        return any(holds(self.inner, name) for name in TOOL_NAMES)

    @property
    def has_tokens(self) -> bool:
        """Whether its tokens are told."""
        return any(is_given(self.fields, name) for name in TOKEN_NAMES)

    @property
    def has_reasoning(self) -> bool:
        """Whether some of its text is reasoning."""
        return any(piece.channel is Channel.REASONING for piece in self.pieces)

    @property
    def names_reasoning(self) -> bool:
        """Whether a field for reasoning is there, with or without text."""
        return any(name in self.inner for name in REASONING_NAMES)

    def text(self, channel: Channel) -> bytes:
        """All text of one channel, as the inside of a JSON string."""
        return b"".join(piece.inside for piece in self.pieces if piece.channel is channel)

    def says_nothing(self, inner: Fields) -> bool:
        """Whether with ``inner`` for its own the choice would tell neither text, role, tool nor an end."""
        return not self.finished and not any(holds(inner, name) for name in inner)

    def with_inner(self, inner: Fields) -> Fields:
        """The choice's fields around ``inner``."""
        return self.fields | {self.key: Raw(encode(inner))}


def holds(fields: Fields, name: str) -> bool:
    """Whether a field is there and neither null nor empty."""
    raw = fields.get(name)
    return raw is not None and bytes(raw) not in _EMPTY


def pieces_of(inner: Fields) -> list[Piece]:
    """The text of a delta or message; reasoning goes before content, and both of its names mean the same text."""
    reasoning = text_inside(inner, "reasoning") or text_inside(inner, "reasoning_content")
    content = text_inside(inner, CONTENT)
    pieces = [Piece(Channel.REASONING, reasoning)] if reasoning else []
    return [*pieces, Piece(Channel.CONTENT, content)] if content else pieces


def open_choice(fields: Fields, key: str) -> Choice:
    """The choice in ``fields``, whose text stands under ``key``: ``delta``, ``message``, or ``text`` itself.

    Raises one of `UNREADABLE` where that is of another shape.
    """
    index = INDEX.decode(fields["index"]) if "index" in fields else 0
    raw = fields.get(key, NULL)
    if key == "text":
        return Choice(fields, key=key, inner={} if raw == NULL else {CONTENT: raw}, index=index)
    return Choice(fields, key=key, inner={} if raw == NULL else FIELDS.decode(raw), index=index)


def close_choice(choice: Choice, inner: Fields) -> Fields:
    """The fields of ``choice`` with ``inner`` in it."""
    if choice.key == "text":
        return choice.fields | {"text": inner.get(CONTENT, quoted())}
    return choice.with_inner(inner)


def content_text(choice: Choice) -> str:
    """The text of a choice, decoded.  Raises one of `UNREADABLE` where it is none."""
    content = choice.inner.get(CONTENT, NULL)
    return WORD.decode(content) if content != NULL else ""


class Splitters:
    """The splitters of an answer's choices."""

    def __init__(self, tags: ThinkTags) -> None:
        self._tags = tags
        self._of: dict[int, TagSplitter] = {}

    @property
    def held(self) -> list[tuple[int, Piece]]:
        """What is held back, by choice."""
        return [(index, _coded(it.channel, it.held)) for index, it in self._of.items() if it.held]

    def split(self, choice: Choice, text: str, *, over: bool) -> None:
        """Replace content, whose ``text`` is decoded, by what it is made of.

        What is held comes out when the choice ends, is ``over``, or calls a tool.
        """
        splitter = self._of.get(choice.index)
        if splitter is None:
            if len(self._of) >= _MOST_CHOICES:
                return
            splitter = self._of[choice.index] = TagSplitter(self._tags)
        held = splitter.held
        pieces = splitter.feed(text)
        if over or choice.finished or choice.has_tool:
            pieces += splitter.flush()
        if not held and pieces == ([(Channel.CONTENT, text)] if text else []):
            return
        reasoning = [piece for piece in choice.pieces if piece.channel is Channel.REASONING]
        choice.pieces = [*reasoning, *(_coded(*piece) for piece in pieces)]
        choice.split = True

    def channel_of(self, index: int, inside: bytes) -> Channel | None:
        """The channel of text that comes as one whole piece; None where a tag has to be looked for.

        ``inside``: of a JSON string, not empty.
        """
        splitter = self._of.get(index)
        if splitter is None or splitter.held or b"<" in inside or b"\\" in inside:
            return None
        splitter.feed(inside.decode("utf-8", "replace"))
        return splitter.channel

    def take_held(self) -> list[tuple[int, Piece]]:
        """Give up what is held back: nothing follows that could complete a tag."""
        return [(index, _coded(*piece)) for index, it in self._of.items() for piece in it.flush()]


def _coded(channel: Channel, text: str) -> Piece:
    return Piece(channel, encode(text)[1:-1])
