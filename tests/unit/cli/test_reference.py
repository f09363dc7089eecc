"""The page of the commands is fresh."""

from __future__ import annotations

from pathlib import Path

from gateway.cli.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == render(), "run: python -m gateway.cli.reference > docs/commands.md"
