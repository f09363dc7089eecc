"""The files under config/: each loads, and the default one says what the defaults are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.settings import load
from gateway.settings.environment import Sections
from gateway.settings.reference import default_text
from gateway.settings.section import walk

ROOT = Path(__file__).parents[3]
DEFAULT = ROOT / "config" / "gateway.yaml"
EXAMPLES = sorted((ROOT / "config" / "examples").rglob("*.yaml"))


@pytest.mark.parametrize("path", [DEFAULT, *EXAMPLES], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_file_loads(path: Path) -> None:
    assert load(path, environ={}, look_at_host=False).runtime.pools


def test_there_are_examples() -> None:
    assert {"two-engines", "https-and-unix"} <= {path.stem for path in EXAMPLES}


def test_the_default_file_changes_no_default() -> None:
    found = load(DEFAULT, environ={}, look_at_host=False)
    assert found.install == type(found.install)()
    assert found.runtime == type(found.runtime)(pools=found.runtime.pools)


def test_the_default_file_shows_every_key_with_its_default() -> None:
    lines = DEFAULT.read_text().splitlines()
    missing = []
    for path, child in walk(Sections):
        keys = [match[1] for line in lines if (match := re.match(rf"[\s#-]*{child.name}:(.*)", line))]
        shown = [key.split("  ")[0].strip().replace('"', "") for key in keys]
        is_value = child.section is None and default_text(child) and "[]" not in path
        if not shown or (is_value and default_text(child).replace('"', "") not in shown):
            missing.append(path)
    assert missing == []
