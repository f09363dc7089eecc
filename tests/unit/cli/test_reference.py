"""The page of the commands is fresh."""

from __future__ import annotations

from pathlib import Path

from gateway.cli.preset_names import preset_help
from gateway.cli.reference import render
from gateway.simulator import library

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == render(), "run: python -m gateway.cli.reference > docs/commands.md"


def test_the_help_of_commands_that_simulate_names_every_preset() -> None:
    assert preset_help() == f"Which deployment to simulate: {', '.join(library.names())}."
