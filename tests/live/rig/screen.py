"""A program at a terminal, and what a person sees of it.

Knows what full-screen programs write: text, line ends, moving the cursor, erasing; colours and questions to the
terminal are read over. Characters that take two columns are not known.
"""

import codecs
import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.live.rig.processes import until

# A control sequence (with its numbers and its letter), a string for the terminal (titles, links), another escape,
# a control character; anything else is text.
PIECE = re.compile(
    r"\x1b\[([<-?]*)([0-9;:]*)[ -/]*([@-~])|\x1b[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[^\[\]P_^X]|[\x00-\x1f\x7f]"
)
# The beginning of a piece whose end has not been read yet.
BEGUN = re.compile(r"\x1b(?:\[[ -?]*|[\]P_^X][^\x07\x1b]*\x1b?)?$")


class Screen:
    """The cells of a terminal; `feed` takes what a program writes."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._pending = ""

    @property
    def lines(self) -> list[str]:
        """What stands there, line by line, without blanks at the ends."""
        return ["".join(line).rstrip() for line in self._cells]

    @property
    def words(self) -> str:
        """All that stands there with single blanks between words, so that wrapped lines make no difference."""
        return " ".join(" ".join(self.lines).split())

    def feed(self, text: str) -> None:
        text, self._pending = self._pending + text, ""
        if begun := BEGUN.search(text):
            text, self._pending = text[: begun.start()], begun[0]
        at = 0
        for piece in PIECE.finditer(text):
            self._write(text[at : piece.start()])
            self._obey(piece)
            at = piece.end()
        self._write(text[at:])

    def _write(self, text: str) -> None:
        for character in text:
            if self._column == self.columns:
                self._column = 0
                self._line_feed()
            self._cells[self._row][self._column] = character
            self._column += 1

    def _line_feed(self) -> None:
        if self._row < self.rows - 1:
            self._row += 1
        else:
            self._cells = [*self._cells[1:], [" "] * self.columns]

    def _obey(self, piece: re.Match[str]) -> None:
        private, numbers, letter = piece.groups()
        if letter is None:
            match piece[0]:
                case "\r":
                    self._column = 0
                case "\n":
                    self._line_feed()
                case "\b":
                    self._column = max(0, self._column - 1)
                case _:  # bells, titles, questions
                    pass
        elif not private:
            self._move_or_erase(letter, [int(number or 0) for number in re.split("[;:]", numbers)])

    def _move_or_erase(self, letter: str, numbers: list[int]) -> None:
        first = max(1, numbers[0])
        match letter:
            case "A":
                self._row = max(0, self._row - first)
            case "B":
                self._row = min(self.rows - 1, self._row + first)
            case "C":
                self._column = min(self.columns - 1, self._column + first)
            case "D":
                self._column = max(0, self._column - first)
            case "G":
                self._column = min(self.columns, first) - 1
            case "H" | "f":
                self._row = min(self.rows, first) - 1
                self._column = min(self.columns, max(1, numbers[1] if len(numbers) > 1 else 1)) - 1
            case "J" | "K":
                self._erase(letter, numbers[0])
            case _:  # colours
                pass

    def _erase(self, what: str, how: int) -> None:
        here = self._row * self.columns + min(self._column, self.columns - 1)
        line = self._row * self.columns, (self._row + 1) * self.columns
        begin, end = (0, self.rows * self.columns) if what == "J" else line
        if how == 0:
            begin = here
        elif how == 1:
            end = here + 1
        for cell in range(begin, end):
            self._cells[cell // self.columns][cell % self.columns] = " "


class AtTerminal:
    """A command that runs at a terminal of its own; all of it ends with the block."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], columns: int, rows: int) -> None:
        self.screen = Screen(columns, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        try:
            self._popen = subprocess.Popen(
                command, cwd=cwd, env=dict(env), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
            )
        finally:
            os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(10)
        os.close(self._ours)

    def type(self, keys: str) -> None:
        """Type, as a person would."""
        os.write(self._ours, keys.encode())

    def until(self, true: Callable[[], object], what: str, *, within_s: float) -> None:
        """Read until it is true; raises Late with the screen past `within_s`."""

        def read_and_ask() -> object:
            self._read()
            return true()

        try:
            until(read_and_ask, what, within_s=within_s)
        except AssertionError as late:
            raise AssertionError("\n".join([str(late), *self.screen.lines])) from late

    def ended(self) -> bool:
        return self._popen.poll() is not None

    def _read(self) -> None:
        while select.select([self._ours], [], [], 0)[0]:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # the other side is closed: the command has ended
                return
            if not piece:
                return
            self.screen.feed(self._decoder.decode(piece))
