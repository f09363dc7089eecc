"""The list of findings in this folder's README names checks that exist and says rightly whom they ask."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_every_check_that_the_list_names_exists_and_asks_who_it_says() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("test_*.py")}
    takes = {
        name: set(re.findall(r"\b(target|servers|simulated|recorded)\b", arguments))
        for text in sources.values()
        for name, arguments in re.findall(r"^def (test_\w+)\(([^)]*)\)", text, re.MULTILINE)
    }
    rows = re.findall(r"^\|.*?\|(.*)\| (R?S?V?) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [(check, asked) for checks, asked in rows for check in re.findall(r"`(test_\w+)`", checks)]
    assert len(named) > 100
    assert [check for check, _ in named if check not in takes] == []
    assert [check for check, asked in named if "V" in asked and not takes[check] & {"target", "servers"}] == []
    assert [check for check, asked in named if "V" not in asked and takes[check] & {"target", "servers"}] == []
