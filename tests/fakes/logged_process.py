"""A gateway process under test whose log is read as it comes: wait for an event, for the end, for a child.

So no test has to sleep.  Also what only polling can tell, with a bound.
"""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 20.0


class LoggedProcess:
    """The supervisor's process and the lines on its standard error, which must be a pipe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen: list[dict[str, Any]] = []
        self.raw: list[str] = []
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self._lines.put(text)
        self._lines.put(None)

    def await_event(self, event: str, **fields: str) -> dict[str, Any]:
        """The next logged event of that name whose fields hold the given texts (as regular expressions)."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                text = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                text = None
            if text is None:
                self._lines.put(None)
                raise AssertionError(f"no {event} {fields} in {self.raw}")
            self.raw.append(text.decode())
            if not text.startswith(b"{"):
                continue
            logged: dict[str, Any] = json.loads(text)
            self.seen.append(logged)
            if logged["event"] == event and all(re.search(want, str(logged[key])) for key, want in fields.items()):
                return logged

    def await_ready(self) -> None:
        self.await_event("supervisor.announced", notice="ready")

    def pid_of(self, child: str) -> int:
        """The newest process of that name among the events seen so far."""
        started = [e for e in self.seen if e["event"] == "supervisor.started" and e["child"] == child]
        return int(started[-1]["pid"])

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop_at_once(self) -> None:
        """Two requests: the second only when the first was taken up, since equal signals merge."""
        self.signal(signal.SIGTERM)
        self.await_event("supervisor.announced", notice="stopping")
        self.signal(signal.SIGTERM)

    def await_exit(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        while (text := self._lines.get(timeout=PATIENCE_S)) is not None:
            self.raw.append(text.decode())
            if text.startswith(b"{"):
                self.seen.append(json.loads(text))
        self._lines.put(None)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code


def lives(pid: int) -> bool:
    """Whether that process still exists (a zombie does not count)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_that(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that only polling can tell."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {PATIENCE_S:g} s: {what}")
        time.sleep(0.01)
