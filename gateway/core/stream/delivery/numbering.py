"""New numbers for the items or blocks of an answer from which some are left out.

Inside the edits of Responses and Messages, whose clients put an answer together by these numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

_MOST: Final = 65_536  # beyond it an item stays where it is: no engine makes so many


class Numbering:
    """Which items are left out, and what that makes of the others' numbers.  Owner: one answer's edit."""

    def __init__(self) -> None:
        self._left_out: list[int] = []

    def __bool__(self) -> bool:
        """Whether anything has been left out."""
        return bool(self._left_out)

    def leave_out(self, number: int) -> bool:
        """Leave the item ``number`` out; False when there are too many already."""
        if number in self:
            return True
        if len(self._left_out) >= _MOST:
            return False
        self._left_out.insert(bisect_left(self._left_out, number), number)
        return True

    def __contains__(self, number: int) -> bool:
        """Whether the item is left out."""
        at = bisect_left(self._left_out, number)
        return at < len(self._left_out) and self._left_out[at] == number

    def new(self, number: int) -> int:
        """The number that an item which stays has now."""
        return number - bisect_left(self._left_out, number)
