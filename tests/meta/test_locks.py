"""The locks pin every distribution with hashes, name no index, and agree with pyproject.toml.

`make lock` writes them.  A dependency that was added to the project file and not locked would be missing from the
image and from every machine that installs from the lock.
"""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.meta.source_tree import ROOT

LOCKS = ["runtime.txt", "dev.txt", "build.txt"]
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ;]+)(?: ;[^\\]*)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")


def pins(text: str) -> dict[str, tuple[Version, int]]:
    """Name -> (version, number of hashes); any line that is no pin, hash or comment raises ValueError."""
    found: dict[str, tuple[Version, int]] = {}
    name = ""
    for line in text.splitlines():
        if pin := PIN.match(line):
            name = canonicalize_name(pin["name"])
            found[name] = (Version(pin["version"]), 0)
        elif HASH.match(line) and name:
            version, count = found[name]
            found[name] = (version, count + 1)
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"neither pin, hash nor comment: {line}")
    return found


def lock(name: str) -> dict[str, tuple[Version, int]]:
    return pins((ROOT / "requirements" / name).read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def direct(group: str) -> list[Requirement]:
    """What the project file asks for: the runtime dependencies, or one dependency group with those it includes."""
    data = project()
    if group == "runtime":
        return [Requirement(text) for text in data["project"]["dependencies"]]
    entries = data["dependency-groups"][group]
    own = [Requirement(entry) for entry in entries if isinstance(entry, str)]
    included = [direct(entry["include-group"]) for entry in entries if isinstance(entry, dict)]
    return own + [requirement for part in included for requirement in part]


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_hashes_and_no_line_names_an_index(name: str) -> None:
    unhashed = [pin for pin, (_, count) in lock(name).items() if count == 0]
    assert unhashed == []


@pytest.mark.parametrize(
    "group,name", [("runtime", "runtime.txt"), ("runtime", "dev.txt"), ("dev", "dev.txt"), ("build", "build.txt")]
)
def test_every_direct_dependency_is_locked_within_its_bounds(group: str, name: str) -> None:
    locked = lock(name)
    for requirement in direct(group):
        version, _ = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_the_tests_run_with_the_versions_that_the_image_gets() -> None:
    dev = lock("dev.txt")
    assert {pin: version for pin, (version, _) in lock("runtime.txt").items() if dev[pin][0] != version} == {}


def test_the_build_backend_is_locked() -> None:
    locked = lock("build.txt")
    for text in project()["build-system"]["requires"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)][0])


def test_every_runtime_dependency_stands_below_its_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    start = lines.index("dependencies = [")
    block = lines[start + 1 : lines.index("]", start)]
    assert block
    assert block[0].strip().startswith("#")
    for above, line in pairwise(block):
        same_reason = line.strip().startswith('"pydantic-settings')
        assert line.strip().startswith("#") or above.strip().startswith("#") or same_reason, line


@pytest.mark.parametrize("line", ["--index-url https://example.invalid", "aiohttp", "aiohttp>=3", "./local.whl"])
def test_a_line_that_is_no_pin_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="neither pin"):
        pins(line + "\n")


def test_the_lock_files_are_those_that_are_checked() -> None:
    assert sorted(path.name for path in Path(ROOT / "requirements").iterdir()) == sorted(LOCKS)
