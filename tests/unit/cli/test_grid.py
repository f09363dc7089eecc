"""Tables and paragraphs in a given width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.grid import GAP, Column, Line, Piece, cells, cut, lay_out, wrap

COLUMNS = [
    Column(title="NAME", least=4),
    Column(title="RATE", unit="tok/s", right=True, rank=1),
    Column(title="MODEL", least=6),
]
ROWS = [
    [Piece("alpha"), Piece("80.1"), Piece("kimi-k2.5-instruct")],
    [Piece("b", "bad"), Piece("1,234.5"), Piece("qwen")],
]


def text(lines: list[Line]) -> list[str]:
    return ["".join(piece.text for piece in line) for line in lines]


def test_columns_are_as_wide_as_their_content_and_aligned() -> None:
    assert text(lay_out(COLUMNS, ROWS, width=None)) == [
        "NAME      RATE  MODEL",
        "         tok/s",
        "alpha     80.1  kimi-k2.5-instruct",
        "b      1,234.5  qwen",
    ]


def test_a_narrow_terminal_cuts_the_widest_column_that_may_be_cut() -> None:
    assert text(lay_out(COLUMNS, ROWS, width=30))[2:] == ["alpha     80.1  kimi-k2.5-ins…", "b      1,234.5  qwen"]


def test_a_narrower_one_leaves_out_the_column_of_the_highest_rank() -> None:
    assert text(lay_out(COLUMNS, ROWS, width=16)) == ["NAME   MODEL", "alpha  kimi-k2.…", "b      qwen"]


def test_what_cannot_be_cut_stays_whole_in_the_narrowest() -> None:
    assert text(lay_out(COLUMNS, ROWS, width=3))[1] == "alp…  kimi-…"


def test_the_style_stays_with_its_cell() -> None:
    assert lay_out(COLUMNS, ROWS, width=None)[3][0] == Piece("b      ", "bad")


def test_wide_characters_take_two_cells() -> None:
    assert cells("模型") == 4
    assert cells("e\u0301") == 1
    assert cut("模型abc", 4) == "模…"
    assert text(
        lay_out(
            [Column(title="M"), Column(title="N")], [[Piece("模型"), Piece("x")], [Piece("ab"), Piece("y")]], width=None
        )
    ) == [
        "M     N",
        "模型  x",
        "ab    y",
    ]


@given(
    st.lists(
        st.tuples(st.text("abc", max_size=30), st.text("12", max_size=8), st.text("xyz", max_size=40)), max_size=5
    ),
    st.integers(20, 120),
)
def test_no_line_is_wider_than_the_terminal_nor_ends_in_blanks(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = text(lay_out(COLUMNS, [[Piece(cell) for cell in row] for row in rows], width=width))
    assert all(cells(line) <= width and line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    "width, expected",
    [
        (None, ["  key: one two three"]),
        (80, ["  key: one two three"]),
        (14, ["  key: one two", "    three"]),
        (11, ["  key: one", "    two", "    three"]),
        (4, ["  key:", "    one", "    two", "    three"]),
    ],
)
def test_a_paragraph_is_broken_between_words_and_indented(width: int | None, expected: list[str]) -> None:
    assert text(wrap([Piece("  key: ", "dim"), Piece("one two three")], width, indent=4)) == expected


@given(st.lists(st.text("ab ", max_size=12)), st.integers(8, 40))
def test_a_broken_paragraph_loses_no_word(parts: list[str], width: int) -> None:
    lines = wrap([Piece(part) for part in parts], width, indent=2)
    assert "".join(text(lines)).replace(" ", "") == "".join(parts).replace(" ", "")


def test_the_gap_is_what_separates_columns() -> None:
    assert text(lay_out([Column(title="A"), Column(title="B")], [], width=None)) == ["A" + " " * GAP + "B"]
