"""Splits ``<think>`` and ``</think>`` out of text, whatever way it is cut.

Used by the edits and by the tap, one splitter for each choice.  Reasoning and content in the order of their pieces are
the text that was fed, without exactly these tags: each ``<think>`` outside of reasoning, the ``</think>`` that belongs
to it or to the prompt's, and, where the prompt opened it, one ``<think>`` with nothing but blanks before it.  All else
is text: pairs inside reasoning are part of it as they stand, a ``</think>`` that closes nothing is content, reasoning
that is never closed goes on to the end.  Holds at most a tag's beginning.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from gateway.core.stream.delivery.mode import Channel, ThinkTags

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
_TAG: Final = re.compile("</?think>")
_LONGEST_BEGINNING: Final = len(CLOSE) - 1

Piece: TypeAlias = tuple[Channel, str]


class TagSplitter:
    """The text of one choice; owner of the beginning of a tag that may still become one."""

    __slots__ = ("_depth", "_fresh", "held")

    def __init__(self, tags: ThinkTags) -> None:
        self._depth = 1 if tags.opened else 0
        self._fresh = tags.opened  # nothing but blanks so far: an opening tag repeats that of the prompt
        self.held = ""

    @property
    def channel(self) -> Channel:
        """What the next character belongs to."""
        return Channel.REASONING if self._depth else Channel.CONTENT

    def feed(self, text: str) -> list[Piece]:
        """Take text; returns what is certain now, in order, no piece empty."""
        if self.held:
            text, self.held = self.held + text, ""
        if not text:
            return []
        if "<" not in text:
            self._fresh = self._fresh and text.isspace()
            return [(self.channel, text)]
        pieces: list[Piece] = []
        start = 0
        for tag in _TAG.finditer(text):
            channel = self.channel
            before = text[start : tag.start()]
            if self._turn(tag[0], before=before):
                if before:
                    pieces.append((channel, before))
                start = tag.end()
        rest = self._hold_back(text[start:])
        if rest:
            self._fresh = self._fresh and rest.isspace()
            pieces.append((self.channel, rest))
        return pieces

    def flush(self) -> list[Piece]:
        """The text is over, or something else than text comes: what was held is text."""
        held, self.held = self.held, ""
        return [(self.channel, held)] if held else []

    def _turn(self, tag: str, *, before: str) -> bool:
        """Take a tag in; whether it is one to be taken out.  ``before``: the text since the last one that was."""
        fresh, self._fresh = self._fresh and not before.strip(), False
        if tag == OPEN:
            if fresh:
                return True
            self._depth += 1
            return self._depth == 1
        if self._depth == 0:
            return False
        self._depth -= 1
        return self._depth == 0

    def _hold_back(self, text: str) -> str:
        at = text.rfind("<", max(0, len(text) - _LONGEST_BEGINNING))
        beginning = text[at:]
        if (
            at < 0
            or beginning == OPEN
            or not (OPEN.startswith(beginning) or (self._depth and CLOSE.startswith(beginning)))
        ):
            return text
        self.held = beginning
        return text[:at]
