"""How much of the processors everything else on the machine took while something was measured.

What is asked for looks at the neighbours alone and never at what was measured, so a choice by it favours no figure.
"""

from __future__ import annotations

import os
import resource
import time

from benchmarks import procstat

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Neighbours:
    """Begins to look when it is made; :meth:`cores` is what the others took since, in cores, on average."""

    def __init__(self) -> None:
        self._from_s = time.monotonic()
        self._ended_s = _ended_s()
        self._living = procstat.look(procstat.tree(os.getpid()))

    def cores(self) -> float:
        """Busy time of all processors, less that of this process and of what it started, over the time since."""
        now = procstat.look(self._living.processes)
        busy_s = sum((now.cores[core] - before).busy for core, before in self._living.cores.items()) * _TICK_S
        ran_ns = sum(max(0, (now.processes[pid] - before).ran_ns) for pid, before in self._living.processes.items())
        ours_s = ran_ns / 1e9 + _ended_s() - self._ended_s
        return max(0.0, busy_s - ours_s) / (time.monotonic() - self._from_s)


def _ended_s() -> float:
    """CPU of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
