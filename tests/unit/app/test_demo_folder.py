"""Folders of demos: those of the dead are removed, those that somebody holds or may hold soon are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.app.demo_folder import LOCK, PREFIX, DemoFolder, remove_dead


def test_what_a_dead_demo_left_is_removed(tmp_path: Path) -> None:
    dead = tmp_path / f"{PREFIX}dead"
    dead.mkdir()
    (dead / LOCK).touch()
    (dead / "history.db").touch()
    remove_dead(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_has_no_lock_yet_or_another_name_is_left_alone(tmp_path: Path) -> None:
    for name in (f"{PREFIX}young", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / LOCK).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "other")
    remove_dead(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert (tmp_path / "other" / LOCK).exists()


def test_a_living_demo_keeps_its_folder_until_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living = DemoFolder()
    remove_dead(tmp_path)
    assert (living.path / LOCK).exists()
    living.close()
    assert list(tmp_path.iterdir()) == []
