"""NCCL's configuration files: which are read, and what they may set."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.simulator.nccl_conf import with_files

CURRENT = "2.30.7"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A folder with a system file, a home with a file, and a named file."""
    (tmp_path / "home").mkdir()
    (tmp_path / "system.conf").write_text("NCCL_PROTO=LL\nNCCL_DEBUG=WARN\nPATH=/nowhere\n# NCCL_ALGO=Tree\nnonsense\n")
    (tmp_path / "home" / ".nccl.conf").write_text("NCCL_PROTO=Simple\nNCCL_PROTO=LL128\nNCCL_MIN_CTAS=4\n")
    (tmp_path / "named.conf").write_text("NCCL_MIN_CTAS=8\n")
    return tmp_path


def read(box: Path, environment: dict[str, str], version: str = CURRENT) -> dict[str, str]:
    return with_files(environment, nccl_version=version, home=box / "home", system=box / "system.conf")


def test_files_set_what_is_absent_and_the_users_wins_over_the_systems(box: Path) -> None:
    assert read(box, {}) == {"NCCL_PROTO": "Simple", "NCCL_DEBUG": "WARN", "NCCL_MIN_CTAS": "4"}


def test_what_is_in_the_environment_wins_and_an_empty_value_is_a_value(box: Path) -> None:
    found = read(box, {"NCCL_PROTO": "", "NCCL_MIN_CTAS": "2"})
    assert (found["NCCL_PROTO"], found["NCCL_MIN_CTAS"]) == ("", "2")


def test_a_named_file_replaces_the_users_and_never_the_systems(box: Path) -> None:
    named = {"NCCL_CONF_FILE": str(box / "named.conf")}
    assert read(box, named) == {**named, "NCCL_PROTO": "LL", "NCCL_DEBUG": "WARN", "NCCL_MIN_CTAS": "8"}
    assert read(box, named, "2.22.3")["NCCL_MIN_CTAS"] == "4"


def test_files_that_are_not_there_are_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, {"A": "1"}) == {"A": "1"}
