"""Tables without frames: columns side by side, as wide as their content, cut where a terminal is too narrow.

Pure: rows of cells in, lines of styled pieces out.  Widths count terminal cells, so wide scripts stay aligned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from unicodedata import combining, east_asian_width

GAP: Final = 2
HEADER: Final = "bold"
UNIT: Final = "dim"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text in one style (a name that the screen knows), padding included."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.  ``unit`` stands below the title.  ``least``: it may be cut down to this many cells (0: never).

    ``rank``: where even that is too wide, the column with the highest rank above 0 is left out first.
    """

    title: str
    unit: str = ""
    right: bool = False
    least: int = 0
    rank: int = 0


Line = tuple[Piece, ...]


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[Piece]], *, width: int | None) -> list[Line]:
    """Header and rows as lines of at most ``width`` cells (None: as wide as they are)."""
    natural = [_natural(columns, rows, at) for at in range(len(columns))]
    shown, widths = _fit(columns, natural, width)
    lines = [_line([Piece(columns[at].title, HEADER) for at in shown], columns, shown=shown, widths=widths)]
    if any(columns[at].unit for at in shown):
        lines.append(_line([Piece(columns[at].unit, UNIT) for at in shown], columns, shown=shown, widths=widths))
    lines += [_line([row[at] for at in shown], columns, shown=shown, widths=widths) for row in rows]
    return lines


def wrap(pieces: Sequence[Piece], width: int | None, *, indent: int = 0) -> list[Line]:
    """``pieces`` broken at blanks into lines of at most ``width`` cells, all but the first indented.

    None: one line.  A word that is longer than a line stays whole.
    """
    if width is None:
        return [tuple(pieces)]
    lines: list[list[Piece]] = [[]]
    used = 0
    for piece in pieces:
        for word in re.findall(r"\s+|\S+", piece.text):
            if used + cells(word) > width and used > indent and not word.isspace():
                lines[-1] = list(_stripped(lines[-1]))
                lines.append([Piece(" " * indent)] if indent else [])
                used = indent
            lines[-1].append(Piece(word, piece.style))
            used += cells(word)
    return [_joined(line) for line in lines]


def _joined(line: list[Piece]) -> Line:
    """Neighbours of one style as one piece."""
    return tuple(
        Piece("".join(piece.text for piece in run), style)
        for style, run in groupby(line, key=lambda piece: piece.style)
    )


def cells(text: str) -> int:
    """How many cells of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, with an ellipsis where something is missing."""
    if cells(text) <= width:
        return text
    kept = ""
    for sign in text:
        if cells(kept + sign) > width - 1:
            break
        kept += sign
    return f"{kept}…"


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[Piece]], at: int) -> int:
    return max([cells(columns[at].title), cells(columns[at].unit), *(cells(row[at].text) for row in rows)])


def _fit(columns: Sequence[Column], natural: list[int], width: int | None) -> tuple[list[int], list[int]]:
    """Which columns are shown, and how wide each of all columns is."""
    shown, widths = list(range(len(columns))), list(natural)
    if width is None:
        return shown, widths
    while _total(shown, [_least(columns[at], natural[at]) for at in range(len(columns))]) > width:
        victim = max(shown, key=lambda at: columns[at].rank)
        if columns[victim].rank == 0:
            break
        shown.remove(victim)
    while _total(shown, widths) > width:
        slack = {at: widths[at] - _least(columns[at], natural[at]) for at in shown}
        widest = max(shown, key=lambda at: slack[at])
        if slack[widest] <= 0:
            break
        widths[widest] -= 1
    return shown, widths


def _least(column: Column, natural: int) -> int:
    return min(natural, column.least) if column.least else natural


def _total(shown: list[int], widths: list[int]) -> int:
    return sum(widths[at] for at in shown) + GAP * (len(shown) - 1)


def _line(pieces: list[Piece], columns: Sequence[Column], *, shown: list[int], widths: list[int]) -> Line:
    """One line; the last piece is not padded, so that no line ends in blanks."""
    line: list[Piece] = []
    for place, (piece, at) in enumerate(zip(pieces, shown, strict=True)):
        text = cut(piece.text, widths[at])
        blank = " " * (widths[at] - cells(text))
        last = place == len(shown) - 1
        padded = blank + text if columns[at].right else text if last else text + blank
        line.append(Piece(padded if last else padded + " " * GAP, piece.style))
    return _stripped(line)


def _stripped(line: list[Piece]) -> Line:
    while line and not line[-1].text.strip():
        line.pop()
    if line:
        line[-1] = Piece(line[-1].text.rstrip(), line[-1].style)
    return tuple(line)
