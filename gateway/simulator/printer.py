"""The log of a simulated server, as vLLM prints it: who speaks, when, and from which place.

Shell: writes to the stream that it was given, and reads the wall clock for the stamps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TextIO

from gateway.simulator.loadlog import LoadLine, Speaker


class Printer:
    """Owner of the output."""

    def __init__(self, output: TextIO) -> None:
        if isinstance(output, TextIOWrapper):
            # Bars and names are not ASCII, whatever the locale says: a log that cannot be written would end a start.
            output.reconfigure(encoding="utf-8", errors="backslashreplace")
        self._output = output
        self._in_bar = False

    def load_line(self, line: LoadLine, *, core_pid: int, worker_pids: Sequence[int] = ()) -> None:
        """Print a line of a start; a Worker whose process id is not given speaks with those after EngineCore's."""
        if line.is_bar:
            self._in_bar = True
            self._output.write(f"\r{line.text}")
            self._output.flush()
            return
        if line.speaker is Speaker.NONE:
            self.raw(line.text)
            return
        name, pid = str(line.speaker), core_pid if line.speaker is Speaker.CORE else None
        if line.speaker is Speaker.WORKER:
            name = f"{line.speaker}_TP{line.rank}"
            pid = worker_pids[line.rank] if line.rank < len(worker_pids) else core_pid + 1 + line.rank
        self.line(name, line.text, source=line.source, level=line.level, pid=pid)

    def line(self, speaker: str, text: str, *, source: str, level: str = "INFO", pid: int | None = None) -> None:
        """Print ``text`` as ``speaker`` (this process where no ``pid`` is given)."""
        stamp = time.strftime("%m-%d %H:%M:%S")
        self.raw(f"({speaker} pid={pid or os.getpid()}) {level} {stamp} [{source}] {text}")

    def simulation(self, text: str) -> None:
        """Print what a real engine would not: that it is none, and what is so."""
        self.raw(f"*** SIMULATION: {text} ***")

    def raw(self, text: str) -> None:
        """Print a line as it is."""
        if self._in_bar:
            self._in_bar = False
            self._output.write("\n")
        self._output.write(f"{text}\n")
        self._output.flush()
