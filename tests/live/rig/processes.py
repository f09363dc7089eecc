"""Start a command and end all of it by process id, whatever has become of its parts.

vLLM is several processes, and a killed parent leaves the others behind; the gateway is a supervisor with children
in process groups of their own. So every command is started with a mark of its own in the environment, which its
children inherit, and as the leader of a process group, since vLLM overwrites its environment when it renames
itself: whoever has the mark or is in the group was started here, and nobody else is. The marks are also written
to a ledger, so that `leftover` can say, after the run, whether anything stayed alive.

Not a session each: the kernel then schedules sessions against each other, and on two busy cores a gateway was seen
to wait for the processor for a second and a half.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

POLL_S = 0.02


class Late(AssertionError):
    """Something awaited did not come true in its time."""


def until(true: Callable[[], object], what: str, *, within_s: float, poll_s: float = POLL_S) -> float:
    """Ask until the answer is true; the seconds it took. Raises Late, naming `what`, past `within_s`."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > within_s:
            raise Late(f"not within {within_s:g} s: {what}")
        time.sleep(poll_s)
    return time.monotonic() - began


def free_port() -> int:
    """A loopback port that nobody listens on now, and that the kernel gives nobody who leaves the choice to it.

    An engine takes its port seconds after it was chosen here.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


MARK = "LIVE_MARK"


def members(mark: str, group: int) -> list[int]:
    """The living processes with this mark or in this process group, zombies left out."""
    line = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            ours = int(fields[2]) == group or line in (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it ended while we looked
            continue
        if fields[0] != "Z" and ours:
            found.append(int(entry.name))
    return sorted(found)


def kill(pids: Sequence[int], how: signal.Signals) -> None:
    """Send one signal to each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            continue


class Process:
    """One started command: its log file, its processes, its end."""

    def __init__(self, command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._mark = uuid.uuid4().hex
        with log.open("ab") as sink:
            self._popen = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {}), MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self.log = log
        self.pid = self._popen.pid
        with (log.parent / "ledger.txt").open("a") as ledger:
            ledger.write(f"{self._mark} {self.pid} {log.name}\n")

    def exit_code(self) -> int | None:
        """The exit code (negative: the signal), or None while the process runs."""
        return self._popen.poll()

    def members(self) -> list[int]:
        """All its living processes, the first one and whatever that left behind."""
        self._popen.poll()
        return members(self._mark, self.pid)

    def send(self, how: signal.Signals) -> None:
        """Send a signal to the first process alone, as an operator or an init system would."""
        self._popen.send_signal(how)

    def send_all(self, how: signal.Signals) -> None:
        """Send a signal to all its processes."""
        kill(self.members(), how)

    def wait(self, *, within_s: float) -> int:
        """The exit code; raises subprocess.TimeoutExpired past `within_s`."""
        return self._popen.wait(within_s)

    def end(self, *, patience_s: float = 15.0) -> int | None:
        """SIGTERM, then after `patience_s` SIGKILL to all that is left; the exit code."""
        self._popen.send_signal(signal.SIGCONT)
        self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self.sweep()
        return self._popen.wait(5)

    def sweep(self) -> None:
        """SIGKILL all that is left and wait until it is gone."""
        kill(self.members(), signal.SIGKILL)
        self._popen.wait(10)
        until(lambda: not self.members(), f"the end of {self.log.name}'s processes", within_s=10)

    def tail(self, lines: int = 25) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
