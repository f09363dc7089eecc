"""Two gateways do not write one history."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import StoreUnusable
from gateway.store.lock import held


def test_a_second_holder_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.db"
    with held(path), pytest.raises(StoreUnusable) as refused, held(path):
        pytest.fail("both hold it")
    assert str(path) in refused.value.message
    assert f"control process {os.getpid()}" in refused.value.message
    assert "store.path" in refused.value.message


def test_it_is_free_again_once_let_go(tmp_path: Path) -> None:
    for _ in range(2):
        with held(tmp_path / "history.db"):
            assert stat.S_IMODE((tmp_path / "history.db.lock").stat().st_mode) == 0o600


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    code = f"import pathlib, time; from gateway.store.lock import held\nwith held(pathlib.Path({str(path)!r})):\n print(1, flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"1\n"
    with pytest.raises(StoreUnusable, match=f"control process {holder.pid}"), held(path):
        pytest.fail("both hold it")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with held(path):
        pass


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "history.db.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnusable), held(tmp_path / "history.db"):
        pytest.fail("it was followed")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_made_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnusable, match="file"), held(tmp_path / "file" / "history.db"):
        pytest.fail("there is no such folder")
