"""Where commands print: plain into a pipe, styled and cut on a terminal."""

from __future__ import annotations

import io

import pytest

from gateway.cli.grid import Column, Piece
from gateway.cli.screen import Screen
from tests.fakes.terminal import Terminal


def test_a_pipe_gets_plain_whole_text() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.line(Piece("bad", "bad"), " thing")
    screen.pair("key", "word " * 60)
    screen.grid([Column(title="A", least=1)], [["x" * 300]])
    assert stream.getvalue() == f"bad thing\n  key         {('word ' * 60).strip()}\nA\n{'x' * 300}\n"
    assert not screen.draws_blocks


def test_a_terminal_gets_colours_and_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal(monkeypatch)
    screen = Screen(terminal)
    screen.line(Piece("bad", "bad"))
    screen.text("word " * 12)
    screen.grid([Column(title="A", least=1)], [["x" * 300]])
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "\x1b[1;31mbad\x1b[0m"
    assert len(lines[1]) <= 40
    assert lines[-1] == "x" * 39 + "…"
    assert screen.draws_blocks


def test_a_terminal_without_colours_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    Screen(terminal).line(Piece("bad", "busy"))
    assert terminal.getvalue() == "bad\n"


def test_what_could_steer_a_terminal_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    Screen(stream).line("a\x1b[2Jb\nc")
    assert stream.getvalue() == "a�[2Jb�c\n"
    terminal = Terminal(monkeypatch)
    Screen(terminal).line("a\x1b[2Jb[red]c")
    assert terminal.getvalue() == "a�[2Jb[red]c\n"


def test_an_old_locale_gets_question_marks_instead_of_a_traceback() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    Screen(stream).line("–…é")
    stream.flush()
    assert raw.getvalue() == "??é\n".encode("latin-1")


def test_json_is_indented() -> None:
    stream = io.StringIO()
    Screen(stream).json(b'{"a":[1]}')
    assert stream.getvalue() == '{\n  "a": [\n    1\n  ]\n}\n'
