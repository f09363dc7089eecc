"""The reference page: fresh, and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings.environment import Sections
from gateway.settings.reference import render, size
from gateway.settings.section import walk

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == render(), "run: python -m gateway.settings.reference > docs/configuration.md"


def test_every_key_says_what_it_is_and_why() -> None:
    page = render()
    for path, child in walk(Sections):
        assert len(child.field.description or "") > 15, path
        assert f"`{child.name}`" in page or f"{child.name}[]`" in page or f"`{path}`" in page, path


@pytest.mark.parametrize(
    "count_bytes, text", [(64 * 1024**2, "64 MiB"), (1024**3, "1 GiB"), (1536, "1536"), (2048, "2 KiB"), (0, "0")]
)
def test_a_size_has_the_largest_unit_that_leaves_it_whole(count_bytes: int, text: str) -> None:
    assert size(count_bytes) == text
