"""What one life of control leaves to the next, and what becomes of it when the files are bad."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.control import keepsake as keepsake_module
from gateway.control.keepsake import ADAPTERS_NAME, CONFIG_NAME, FLEET_NAME, Keepsake
from gateway.fleet import Remembered
from tests.fakes.fleets import cards

LEFT = (Remembered(name="a", url="http://h:1", cards=cards("m")),)


def test_the_fleet_comes_back_as_it_was_left(tmp_path: Path) -> None:
    Keepsake(tmp_path).keep_fleet(7, LEFT)
    assert Keepsake(tmp_path).fleet() == (7, LEFT)
    assert stat.S_IMODE((tmp_path / FLEET_NAME).stat().st_mode) == 0o600


def test_orders_about_adapters_come_back_as_they_were_left(tmp_path: Path) -> None:
    assert Keepsake(tmp_path).adapters() == {}
    orders = {"p": {"poet": True, "org/other": False}}
    Keepsake(tmp_path).keep_adapters(orders)
    assert Keepsake(tmp_path).adapters() == orders
    for content in (b"", b"{", b'{"format": 2, "orders": {}}', b'{"format": 1, "orders": {"p": 3}}'):
        (tmp_path / ADAPTERS_NAME).write_bytes(content)
        assert Keepsake(tmp_path).adapters() == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"format": 1, "generation": 3',
        b'{"format": 2, "generation": 3, "backends": []}',
        b'{"format": 1, "generation": -3, "backends": []}',
        b'{"format": 1, "generation": 3, "backends": [{"name": 5}]}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
    ids=["empty", "torn", "cut", "later format", "negative", "wrong type", "binary", "deep"],
)
def test_a_bad_file_is_nothing_to_remember(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FLEET_NAME).write_bytes(content)
    assert Keepsake(tmp_path).fleet() == (0, ())


def test_a_missing_or_huge_file_is_nothing_to_remember(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Keepsake(tmp_path).fleet() == (0, ())
    Keepsake(tmp_path).keep_fleet(7, LEFT)
    monkeypatch.setattr(keepsake_module, "MAX_BYTES", 10)
    assert Keepsake(tmp_path).fleet() == (0, ())


def test_a_configuration_counts_only_if_it_was_applied_after_the_installation_began(tmp_path: Path) -> None:
    began = tmp_path / "install.json"
    began.touch()
    left = Keepsake(tmp_path)
    left.keep_config("pools: []  # ü\n")
    os.utime(began, ns=(0, 1_000))
    assert left.config(newer_than=began) == "pools: []  # ü\n"
    os.utime(tmp_path / CONFIG_NAME, ns=(0, 1_000))
    assert left.config(newer_than=began) == ""


def test_a_configuration_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    left = Keepsake(tmp_path)
    assert left.config(newer_than=tmp_path / "install.json") == ""
    (tmp_path / "install.json").touch()
    assert left.config(newer_than=tmp_path / "install.json") == ""
    os.utime(tmp_path / "install.json", ns=(0, 1_000))
    (tmp_path / CONFIG_NAME).write_bytes(b"\xff\xfe")
    assert left.config(newer_than=tmp_path / "install.json") == ""


def test_a_folder_that_cannot_be_written_is_a_problem_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    left = Keepsake(folder)
    left.keep_fleet(1, LEFT)
    assert left.problem == f"{folder / FLEET_NAME}: no such file or directory"
    folder.mkdir()
    left.keep_fleet(2, LEFT)
    assert left.problem == ""
    assert left.fleet() == (2, LEFT)
