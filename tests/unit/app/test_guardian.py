"""The guardian: ends what the demo started when the lifeline is cut, and nothing that is somebody else's."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from gateway.app.guardian import DONE, guard


def sleeper(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *arguments], start_new_session=True)


def test_a_cut_lifeline_ends_the_groups_and_removes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    ours = sleeper(str(folder))
    guard([f"{ours.pid}\n"], folder)
    assert ours.wait(20) == -signal.SIGTERM
    assert not folder.exists()


def test_a_process_that_does_not_name_the_folder_is_left_alone(tmp_path: Path) -> None:
    other = sleeper()
    try:
        guard([f"{other.pid}\n"], tmp_path / "demo")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_after_done_nothing_is_touched(tmp_path: Path) -> None:
    ours = sleeper(str(tmp_path))
    try:
        guard([f"{ours.pid}\n", f"{DONE}\n"], tmp_path)
        assert ours.poll() is None
        assert tmp_path.exists()
    finally:
        ours.kill()
        ours.wait()
