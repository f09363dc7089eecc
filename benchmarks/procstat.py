"""CPU time, waiting time and memory of processes and of the machine, read from /proc.

Used at the edges of a measurement window. The scheduler's own account (`schedstat`, nanoseconds) is summed over
all threads of a process; `/proc/stat` (ticks) is only the cross-check of what else ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Nanoseconds on a CPU, and nanoseconds runnable but waiting for one."""

    ran_ns: int = 0
    waited_ns: int = 0

    def __add__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.ran_ns + other.ran_ns, self.waited_ns + other.waited_ns)

    def __sub__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.ran_ns - other.ran_ns, self.waited_ns - other.waited_ns)


@dataclass(frozen=True, slots=True)
class CoreTicks:
    """Busy and total clock ticks of one core since boot; `stolen` ticks went to other guests of the host."""

    busy: int
    stolen: int
    total: int

    def __sub__(self, other: CoreTicks) -> CoreTicks:
        return CoreTicks(self.busy - other.busy, self.stolen - other.stolen, self.total - other.total)


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Resident bytes, and the proportional share where pages shared with others are split among them."""

    resident_bytes: int = 0
    proportional_bytes: int = 0

    def __add__(self, other: ProcessMemory) -> ProcessMemory:
        return ProcessMemory(
            self.resident_bytes + other.resident_bytes, self.proportional_bytes + other.proportional_bytes
        )


@dataclass(frozen=True, slots=True)
class TreeSample:
    """One look at a set of processes and the cores, all at the same moment."""

    processes: dict[int, CpuTime] = field(default_factory=dict)
    cores: dict[int, CoreTicks] = field(default_factory=dict)


def parse_schedstat(text: str) -> CpuTime:
    """`/proc/PID/task/TID/schedstat`: run time, run-queue wait, number of slices."""
    ran, waited, *_ = text.split()
    return CpuTime(ran_ns=int(ran), waited_ns=int(waited))


def parse_parent(stat_text: str) -> int:
    """The parent's id in `/proc/PID/stat`; the name in brackets before it may itself hold blanks and brackets."""
    return int(stat_text.rpartition(")")[2].split()[1])


def parse_cores(stat_text: str) -> dict[int, CoreTicks]:
    """The per-core lines of `/proc/stat`."""
    cores = {}
    for line in stat_text.splitlines():
        name, *figures = line.split()
        if not name.startswith("cpu") or not name[3:].isdigit():
            continue
        ticks = [int(figure) for figure in figures[:8]]
        user, nice, system, idle, waiting, hard_irq, soft_irq, stolen = ticks
        busy = user + nice + system + hard_irq + soft_irq
        cores[int(name[3:])] = CoreTicks(busy=busy, stolen=stolen, total=busy + idle + waiting + stolen)
    return cores


def parse_memory(rollup_text: str) -> ProcessMemory:
    """`Rss` and `Pss` of `/proc/PID/smaps_rollup`."""
    figures = {}
    for line in rollup_text.splitlines():
        name, _, rest = line.partition(":")
        if name in {"Rss", "Pss"}:
            figures[name] = int(rest.split()[0]) * 1024
    return ProcessMemory(resident_bytes=figures.get("Rss", 0), proportional_bytes=figures.get("Pss", 0))


def cpu_time(pid: int) -> CpuTime:
    """CPU time of all living threads of a process; zero when it is gone."""
    total = CpuTime()
    try:
        tasks = os.listdir(PROC / str(pid) / "task")  # noqa: PTH208 -- names are wanted, not paths
    except FileNotFoundError:
        return total
    for task in tasks:
        try:
            total += parse_schedstat((PROC / str(pid) / "task" / task / "schedstat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def memory(pid: int) -> ProcessMemory:
    """Memory of one process; zero when it is gone."""
    try:
        return parse_memory((PROC / str(pid) / "smaps_rollup").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return ProcessMemory()


def command_line(pid: int) -> str:
    """The command line of a process, blanks between the words; empty when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def tree(root_pid: int) -> list[int]:
    """The ids of a process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = parse_parent((entry / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [root_pid]
    for pid in found:
        found += children.get(pid, [])
    return found


def look(pids: Iterable[int]) -> TreeSample:
    """Sample the named processes and every core."""
    processes = {pid: cpu_time(pid) for pid in pids}
    return TreeSample(processes=processes, cores=parse_cores((PROC / "stat").read_text()))
