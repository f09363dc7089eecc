"""Each row of the behaviour page names a test, and that test is there: what is promised is shown."""

from __future__ import annotations

import re

from tests.meta.source_tree import ROOT, python_sources

PAGE = (ROOT / "docs" / "behaviour.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    """The table rows, heads and lines left out."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [line for line in lines if not line.endswith("| shown by |")]


def test_every_row_names_one_test() -> None:
    assert len(rows()) > 40
    assert [row for row in rows() if len(NAMED.findall(row.rpartition(" | ")[2])) != 1] == []


def test_every_test_that_a_row_names_is_there() -> None:
    there = {
        (source.name.removeprefix("tests/"), function.name)
        for source in python_sources(ROOT / "tests")
        for function in source.functions()
    }
    assert [named for row in rows() for named in NAMED.findall(row) if named not in there] == []


def test_no_test_is_named_twice() -> None:
    named = [test for row in rows() for test in NAMED.findall(row)]
    assert len(named) == len(set(named))
