"""Sizes of files and functions, and the docstring that opens each module.

The limits are part of how the code is kept readable at a glance; a file that reaches one is split by concern.  They
are not raised in the change that breaks them.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.meta.source_tree import PACKAGE, ROOT, Source, length_in_lines, python_sources

MAX_FILE_LINES = 300
MAX_TEST_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MIN_DOCSTRING_LINES = 3
MAX_DOCSTRING_LINES = 40  # the error tree is a picture of its own


def too_long_files(sources: list[Source], *, limit: int) -> dict[str, int]:
    return {source.name: source.line_count for source in sources if source.line_count > limit}


def too_long_functions(sources: list[Source]) -> dict[str, int]:
    return {
        f"{source.name}:{function.lineno} {function.name}": length_in_lines(function)
        for source in sources
        for function in source.functions()
        if length_in_lines(function) > MAX_FUNCTION_LINES
    }


def docstring_lines(source: Source) -> int:
    text = ast.get_docstring(source.tree) or ""
    return len(text.splitlines())


def outside_the_package() -> list[Source]:
    return [source for folder in ("tests", "benchmarks", "docs") for source in python_sources(ROOT / folder)]


def test_no_module_of_the_gateway_is_over_300_lines() -> None:
    assert too_long_files(python_sources(PACKAGE), limit=MAX_FILE_LINES) == {}


def test_no_test_or_benchmark_file_is_over_500_lines() -> None:
    assert too_long_files(outside_the_package(), limit=MAX_TEST_FILE_LINES) == {}


def test_no_function_is_over_60_lines() -> None:
    assert too_long_functions(python_sources(PACKAGE) + outside_the_package()) == {}


def test_every_module_of_the_gateway_opens_with_a_docstring_of_three_lines_or_more() -> None:
    lines = {source.name: docstring_lines(source) for source in python_sources(PACKAGE)}
    assert {name: count for name, count in lines.items() if count < MIN_DOCSTRING_LINES} == {}


def test_no_module_docstring_is_a_page() -> None:
    lines = {source.name: docstring_lines(source) for source in python_sources(PACKAGE)}
    assert {name: count for name, count in lines.items() if count > MAX_DOCSTRING_LINES} == {}


# --- the checks themselves can fail -------------------------------------------------------------------------------


def made_source(text: str) -> Source:
    return Source(path=PACKAGE / "made.py", text=text, tree=ast.parse(text))


@pytest.mark.parametrize(
    "body_lines,found", [(MAX_FUNCTION_LINES - 1, False), (MAX_FUNCTION_LINES, True)], ids=["at limit", "over"]
)
def test_a_function_is_measured_from_def_to_end(body_lines: int, found: bool) -> None:
    source = made_source("def made():\n" + "    pass\n" * body_lines)
    assert bool(too_long_functions([source])) is found


def test_a_docstring_does_not_lengthen_a_function() -> None:
    source = made_source('def made():\n    """' + "Line.\n    " * 80 + '"""\n    return 1\n')
    assert too_long_functions([source]) == {}


def test_a_file_one_line_over_the_limit_is_found() -> None:
    sources = [made_source("x = 1\n" * (MAX_FILE_LINES + 1))]
    assert too_long_files(sources, limit=MAX_FILE_LINES) == {"gateway/made.py": MAX_FILE_LINES + 1}


def test_a_short_docstring_is_found() -> None:
    assert docstring_lines(made_source('"""One line.\nTwo lines.\n"""\n')) < MIN_DOCSTRING_LINES


def test_the_tree_that_is_measured_is_this_one() -> None:
    assert Path(__file__) in {source.path for source in outside_the_package()}
    assert PACKAGE / "__init__.py" in {source.path for source in python_sources(PACKAGE)}
