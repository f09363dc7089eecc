"""Reading /proc: the scheduler's account, parents, cores, memory."""

import os
import subprocess
import sys

from benchmarks import procstat
from benchmarks.procstat import CoreTicks, CpuTime, ProcessMemory

STAT = """cpu  30 2 12 200 4 1 3 5 0 0
cpu0 10 1 6 100 2 1 2 4 0 0
cpu1 20 1 6 100 2 0 1 1 7 7
intr 12345 0 0
ctxt 99
"""

ROLLUP = """55d0c0000000-7ffd0000 ---p 00000000 00:00 0                  [rollup]
Rss:               20480 kB
Pss:               10240 kB
Pss_Dirty:          5000 kB
Shared_Clean:       9000 kB
"""


def test_schedstat_gives_time_run_and_time_waited() -> None:
    assert procstat.parse_schedstat("123456789 4242 77\n") == CpuTime(ran_ns=123_456_789, waited_ns=4242)


def test_parent_is_found_behind_a_name_with_blanks_and_brackets() -> None:
    assert procstat.parse_parent("4711 (a (strange) name) S 17 4711 4711 0 -1 4194560") == 17


def test_cores_leave_out_the_sum_and_count_stolen_ticks_apart() -> None:
    cores = procstat.parse_cores(STAT)
    assert cores == {0: CoreTicks(busy=20, stolen=4, total=126), 1: CoreTicks(busy=28, stolen=1, total=131)}


def test_differences_are_taken_field_by_field() -> None:
    assert CoreTicks(20, 4, 126) - CoreTicks(5, 1, 26) == CoreTicks(busy=15, stolen=3, total=100)
    assert CpuTime(9, 5) - CpuTime(4, 3) == CpuTime(ran_ns=5, waited_ns=2)


def test_memory_reads_resident_and_proportional_size_in_bytes() -> None:
    assert procstat.parse_memory(ROLLUP) == ProcessMemory(resident_bytes=20_971_520, proportional_bytes=10_485_760)


def test_a_process_that_is_gone_reads_as_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert procstat.cpu_time(child.pid) == CpuTime()
    assert procstat.memory(child.pid) == ProcessMemory()
    assert procstat.command_line(child.pid) == ""


def test_a_child_belongs_to_the_tree_and_shows_its_command_line() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "a-mark"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.pid in procstat.tree(os.getpid())
        assert procstat.command_line(child.pid).endswith("a-mark")
        assert child.stdin is not None
        child.stdin.close()


def test_own_cpu_time_grows_with_work() -> None:
    before = procstat.cpu_time(os.getpid())
    sum(number * number for number in range(200_000))
    assert (procstat.cpu_time(os.getpid()) - before).ran_ns > 0
