"""Nothing in the repository points out of it: no paths of one machine, no neighbour folders, no registry hosts.

A registry's address in a lock would bind every clone to it, and a path of the machine where a file was written helps
nobody.  Recorded data under tests/data and the licence text are looked at like everything else.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.source_tree import ROOT, known_files

MAX_FILE_BYTES = 4 * 1024 * 1024

# Written so that this file does not match itself.
OUTSIDE = re.compile(
    r"/wor[k]/(?:main|shared|scratch)|\.\./shar[e]d|/roo[t]/|/hom[e]/[a-z]+/"
    r"|pypi\.or[g]|pythonhosted\.or[g]|registry\.npmj[s]|npmjs\.co[m]/|deb\.debia[n]\.org|/opt/pyp[i]|/opt/wheel[s]"
)


def pointers_out(text: str) -> list[str]:
    return sorted({match.group(0) for match in OUTSIDE.finditer(text)})


def decoded(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def test_no_file_points_out_of_the_repository() -> None:
    found = {str(path.relative_to(ROOT)): pointers_out(decoded(path)) for path in known_files()}
    assert {name: matches for name, matches in found.items() if matches} == {}


def test_no_file_is_huge() -> None:
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in known_files()}
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_BYTES} == {}


@pytest.mark.parametrize(
    "text",
    ["see ../share" + "d/x.md", "/wor" + "k/main/x", "https://files.pythonhosted" + ".org/x", "/roo" + "t/.cache"],
)
def test_a_pointer_out_is_found(text: str) -> None:
    assert pointers_out(text)
