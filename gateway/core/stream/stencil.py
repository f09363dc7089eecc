"""Recognises events that differ from an earlier one in nothing but their text, without parsing them.

Inside the tap.  A stream's events of one channel are the same bytes but for the text of the token, so what stands
before and after that text is learnt from an event that was parsed, and proved: with another text between them the
parser must read the same event with that text.  After that any run of plain characters between the two is the whole
of the same JSON string, so its length is all that is left to find out.  Must be told nothing it cannot prove: where
anything else differs it says nothing, and the event is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import json

from gateway.core.stream.chunk import UNREADABLE
from gateway.core.stream.http1 import SHORT_MAX_BYTES

_OPENING: Final = b"data: "
_CLOSING: Final = b"\n\n\r\n"
_PROBE: Final = b"~"

_PLAIN: Final = re.compile(rb"[ !#-\[\]-~]+")
"""Characters that mean themselves inside a JSON string, each of one byte: no quote, backslash, control, non-ASCII."""

_FREE_LESSONS: Final = 4
_HITS_A_LESSON: Final = 16
"""Learning costs three parses; a stream whose events differ in more than their text must not pay that for each."""


class Stencil:
    """What surrounds the text of the last events that were parsed, for the channel they were of.

    Owner: one tap; the relay asks it too, before the tap sees the event.  ``passable``: an event that fits holds none
    of the byte strings that the relay looks for (:meth:`clear`).
    """

    __slots__ = ("_after", "_before", "_hits", "_known", "_lessons", "_longest_bytes", "_reasoning", "passable")

    def __init__(self, max_event_bytes: int) -> None:
        """``max_event_bytes``: a longer event is not to be read at all."""
        self._longest_bytes = max_event_bytes - SHORT_MAX_BYTES
        self._before = b""
        self._after = b""
        self._known = False
        self._reasoning = False
        self._hits = 0
        self._lessons = 0
        self.passable = False

    @property
    def teachable(self) -> bool:
        """Whether another lesson may pay."""
        return self._lessons < _FREE_LESSONS + self._hits // _HITS_A_LESSON

    def fits(self, data: bytes, start: int) -> int:
        """Bytes of text in ``data``, a short HTTP chunk whose event begins at ``start``; less than 0: of reasoning.

        0 says nothing: the event has to be parsed.
        """
        if not (self._known and data.startswith(self._before, start) and data.endswith(self._after)):
            return 0
        begin, end = start + len(self._before), len(data) - len(self._after)
        if _PLAIN.fullmatch(data, begin, end) is None:
            return 0
        self._hits += 1
        return begin - end if self._reasoning else end - begin

    def learn(
        self, event: bytes, field: bytes, text: str, *, reasoning: bool, same: Callable[[bytes, str], bool]
    ) -> None:
        """Learn from ``event`` (its data), in whose ``field`` ``text`` stands.

        ``same`` says whether other data is the same event but for another text in that field; it may raise UNREADABLE.
        """
        self._lessons += 1
        self._known = self.passable = False
        written = json.encode(text)
        around = b'"%b":%b' % (field, written)
        at = event.find(around)
        if len(event) > self._longest_bytes or at < 0 or not _PLAIN.fullmatch(written[1:-1]):
            return
        end = at + len(around) - 1
        before, after = event[: end - len(written) + 2], event[end:]
        try:
            self._known = same(before + _PROBE + after, _PROBE.decode())
        except UNREADABLE:
            return
        self._before = _OPENING + before
        self._after = after + _CLOSING
        self._reasoning = reasoning

    def clear(self, needles: Sequence[bytes]) -> None:
        """Work out ``passable``: whether none of ``needles`` can be in an event that fits, whatever its text."""
        self.passable = self._known and not any(map(self._may_hold, needles))

    def _may_hold(self, needle: bytes) -> bool:
        before, after = self._before, self._after
        if needle in before or needle in after:
            return True
        # Over an edge: a text has a character and no quote, so the needle's part in it ends where it has its next one.
        for begun in range(len(needle)):
            quote = needle.find(b'"', begun)
            if quote != begun and before.endswith(needle[:begun]) and (quote < 0 or after.startswith(needle[quote:])):
                return True
        return False
