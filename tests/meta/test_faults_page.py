"""Each fault of the faults page names its tests, each of them is there, and no test of a fault is missing there."""

from __future__ import annotations

import re

from tests.meta.source_tree import ROOT, python_sources

PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
CELLS = re.compile(r"`[\w/]+\.py::\w+`(?:, `[\w/]+\.py::\w+`)*")


def rows() -> list[list[str]]:
    """The cells of each row, heads left out."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.endswith("| tests |")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def named() -> list[tuple[str, str]]:
    return [test for row in rows() for test in NAMED.findall(row[-1])]


def written() -> set[tuple[str, str]]:
    """Every test function, by file and name."""
    return {
        (source.name.removeprefix("tests/"), function.name)
        for source in python_sources(ROOT / "tests")
        for function in source.functions()
        if function.name.startswith("test_")
    }


def test_every_row_has_a_fault_an_end_and_tests() -> None:
    assert len(rows()) > 50
    assert [row for row in rows() if len(row) != 3 or not all(row) or not CELLS.fullmatch(row[-1])] == []


def test_every_test_that_a_row_names_is_there_and_stands_once() -> None:
    there = written()
    assert [test for test in named() if test not in there] == []
    assert len(named()) == len(set(named()))


def test_every_test_of_a_fault_has_its_row() -> None:
    faults = {test for test in written() if "/test_fault_" in test[0]}
    assert len(faults) > 60
    assert faults - set(named()) == set()
