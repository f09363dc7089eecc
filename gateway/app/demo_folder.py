"""The demo's folder, what keeps it alive, and what is left of demos that were killed.

Shell.  A file in the folder is locked by the demo and by its guardian; the kernel lets go of the lock when both are
gone, however they went.  Must not touch a folder that anybody holds, or whose lock is not there yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from gateway.app import guardian

PREFIX: Final = "pacekeeper-demo-"
LOCK: Final = "alive.lock"
_GUARDIAN_ENDS_WITHIN_S: Final = 8.0


class DemoFolder:
    """Owner of one folder, its lock and its guardian."""

    def __init__(self) -> None:
        remove_dead(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Locked under another name first: a lock file that nobody holds means a dead demo.
        fresh = self.path / "fresh.lock"
        self._lock = os.open(fresh, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        fresh.rename(self.path / LOCK)
        self._guardian = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-I", "-S", guardian.__file__, str(self.path)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            pass_fds=(self._lock,),
        )

    def guard(self, leader: int) -> None:
        """Have the group of ``leader`` ended when this process is killed."""
        self._say(str(leader))

    def close(self) -> None:
        """Remove the folder; nothing runs in it any more."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._say(guardian.DONE)
        with contextlib.suppress(OSError):
            if self._guardian.stdin is not None:
                self._guardian.stdin.close()
        try:
            self._guardian.wait(_GUARDIAN_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._guardian.kill()
            self._guardian.wait()
        os.close(self._lock)

    def _say(self, line: str) -> None:
        if self._guardian.stdin is not None:
            with contextlib.suppress(OSError):  # somebody killed the guardian: the demo goes on without
                self._guardian.stdin.write(f"{line}\n")
                self._guardian.stdin.flush()


def remove_dead(place: Path) -> None:
    """Remove the folders in ``place`` of demos of this user that are gone."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
