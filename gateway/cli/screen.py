"""Where commands print: a terminal with colours and a width, or a pipe that gets plain, uncut text.

The only module that writes results to standard output.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any, Final, TextIO

from gateway.cli.grid import Column, Line, Piece, cells, lay_out, wrap

_STYLES: Final = {
    "": "",
    "bold": "bold",
    "dim": "dim",
    "good": "green",
    "busy": "cyan",
    "warn": "yellow",
    "bad": "bold red",
}
"""Our names of styles -> rich's."""

_KEY_CELLS: Final = 12


class Screen:
    """Standard output, as the commands see it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        if isinstance(self._stream, TextIOWrapper):
            self._stream.reconfigure(errors="replace")  # an old locale gets question marks, not a traceback
        self.is_terminal = self._stream.isatty()
        self.width: int | None = shutil.get_terminal_size((100, 24)).columns if self.is_terminal else None
        self._console: Any = None

    @property
    def draws_blocks(self) -> bool:
        """Whether block characters can be shown: a terminal that speaks UTF-8."""
        return self.is_terminal and (self._stream.encoding or "").lower().replace("-", "") == "utf8"

    def line(self, *pieces: Piece | str) -> None:
        """Print one line as it is; without pieces an empty one."""
        self._write(_pieces(pieces))

    def text(self, *pieces: Piece | str) -> None:
        """Print a sentence, broken between words where the terminal is too narrow."""
        for line in wrap(_pieces(pieces), self.width):
            self._write(line)

    def pair(self, key: str, *pieces: Piece | str) -> None:
        """Print ``key`` and its value, the values of several pairs in one column."""
        title = Piece(f"  {key}{' ' * max(1, _KEY_CELLS - cells(key))}", "dim")
        for line in wrap((title, *_pieces(pieces)), self.width, indent=_KEY_CELLS + 2):
            self._write(line)

    def grid(self, columns: Sequence[Column], rows: Sequence[Sequence[Piece | str]]) -> None:
        """Print a table."""
        for line in lay_out(columns, [_pieces(row) for row in rows], width=self.width):
            self._write(line)

    def json(self, body: bytes) -> None:
        """Print a JSON text, indented."""
        from msgspec.json import format as indented  # noqa: PLC0415 - only what a command needs is loaded

        self._stream.write(indented(body, indent=2).decode() + "\n")

    def _write(self, line: Line) -> None:
        if not self.is_terminal:
            self._stream.write("".join(_printable(piece.text) for piece in line).rstrip() + "\n")
            return
        from rich.console import Console  # noqa: PLC0415 - a pipe needs none of it
        from rich.text import Text  # noqa: PLC0415

        self._console = self._console or Console(file=self._stream, width=self.width, highlight=False)
        text = Text()
        for piece in line:
            text.append(_printable(piece.text), style=_STYLES[piece.style])
        self._console.print(text, soft_wrap=True)


def _pieces(given: Sequence[Piece | str]) -> Line:
    return tuple(Piece(item) if isinstance(item, str) else item for item in given)


def _printable(text: str) -> str:
    """``text`` without what could steer a terminal."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "�" for sign in text)
