"""The folder tests/unit mirrors gateway/: the tests of a module are where its path says.

`gateway/core/stream/sse.py` is tested by `tests/unit/core/stream/test_sse.py`, or by several files that add what
they are about: `test_sse_limits.py`.  A file without a module is a leftover of a rename.
"""

from __future__ import annotations

from pathlib import Path

from tests.meta.source_tree import PACKAGE, ROOT

UNIT = ROOT / "tests" / "unit"


def subjects(folder: Path) -> set[str]:
    """Names that a test file in the mirrored folder may be about: its modules, its packages, and itself."""
    if not folder.is_dir():
        return set()
    modules = {path.stem for path in folder.glob("*.py")}
    packages = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
    return (modules | packages | {folder.name}) - {"__init__"}


def has_subject(test_file: Path, *, unit: Path, package: Path) -> bool:
    folder = package / test_file.parent.relative_to(unit)
    name = test_file.stem.removeprefix("test_")
    return any(name == subject or name.startswith(f"{subject}_") for subject in subjects(folder))


def test_every_unit_test_file_has_its_module() -> None:
    files = sorted(UNIT.rglob("test_*.py"))
    assert files
    assert [str(path.relative_to(ROOT)) for path in files if not has_subject(path, unit=UNIT, package=PACKAGE)] == []


def test_a_unit_test_file_without_a_module_is_found(tmp_path: Path) -> None:
    package, unit = tmp_path / "package", tmp_path / "unit"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "sse.py").touch()
    for name, expected in [("test_sse.py", True), ("test_sse_limits.py", True), ("test_ssex.py", False)]:
        assert has_subject(unit / "inner" / name, unit=unit, package=package) is expected
    assert not has_subject(unit / "gone" / "test_sse.py", unit=unit, package=package)
