"""Outlives the demo for a moment when that is killed: ends its children and removes its folder.

A process of its own, started by path with a bare interpreter (``python -I -S guardian.py FOLDER``), so it imports
nothing of ours.  Its standard input is the lifeline: one process group a line, the word ``done`` when there is nothing
left to end, and the end of the stream when the demo is gone.  Must not touch what is not the demo's: a group whose
leader does not name the folder is left alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

_ASKED_S = 3.0
_POLL_S = 0.1
DONE = "done"
"""What the demo writes when it has ended its children itself."""


def guard(lines: Iterable[str], folder: Path) -> None:
    """Read the lifeline to its end; then, unless it said that all is done, end every group and remove ``folder``."""
    leaders: list[int] = []
    for line in lines:
        if line.strip() == DONE:
            return
        leaders.append(int(line))
    time.sleep(_POLL_S)  # one that was started just now has no command line yet
    ours = [leader for leader in leaders if _names(leader, folder)]
    for leader in ours:
        _signal(leader, signal.SIGTERM)
    end_s = time.monotonic() + _ASKED_S
    while time.monotonic() < end_s and any(_names(leader, folder) for leader in ours):
        time.sleep(_POLL_S)
    for leader in ours:
        _signal(leader, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _names(leader: int, folder: Path) -> bool:
    """Whether the leader still is the process that was started for this folder."""
    try:
        return os.fsencode(folder) in Path(f"/proc/{leader}/cmdline").read_bytes()
    except OSError:
        return False


def _signal(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    guard(sys.stdin, Path(sys.argv[1]))
