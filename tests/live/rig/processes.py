"""Start a command in a session of its own, and end all of it by process id.

vLLM is three processes, and a killed parent leaves the others behind; the gateway is a supervisor with
children. Each command therefore leads its own session: whoever is in that session was started here, and
nobody else ever is. The session numbers are also written to a ledger, so that `leftover` can say, after
the run, whether anything stayed alive.
"""

import os
import signal
import socket
import subprocess
import time
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
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def members(session: int) -> list[int]:
    """The process ids in a session, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        if fields[0] != "Z" and int(fields[3]) == session:
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
    """One started command: its log file, its session, its end."""

    def __init__(self, command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            self._popen = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.log = log
        self.pid = self._popen.pid
        with (log.parent / "ledger.txt").open("a") as ledger:
            ledger.write(f"{self.pid} {log.name}\n")

    def exit_code(self) -> int | None:
        """The exit code (negative: the signal), or None while the process runs."""
        return self._popen.poll()

    def members(self) -> list[int]:
        """All living processes of the session, the leader and whatever it left behind."""
        self._popen.poll()
        return members(self.pid)

    def send(self, how: signal.Signals) -> None:
        """Send a signal to the leader alone, as an operator or an init system would."""
        self._popen.send_signal(how)

    def send_all(self, how: signal.Signals) -> None:
        """Send a signal to every process of the session."""
        kill(self.members(), how)

    def wait(self, *, within_s: float) -> int:
        """The exit code; raises subprocess.TimeoutExpired past `within_s`."""
        return self._popen.wait(within_s)

    def end(self, *, patience_s: float = 15.0) -> int | None:
        """SIGTERM, then after `patience_s` SIGKILL to all that is left of the session; the leader's exit code."""
        self._popen.send_signal(signal.SIGCONT)
        self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self.sweep()
        return self._popen.wait(5)

    def sweep(self) -> None:
        """SIGKILL all that is left of the session and wait until it is gone."""
        kill(self.members(), signal.SIGKILL)
        until(lambda: not self.members(), f"the end of {self.log.name}'s processes", within_s=10)

    def tail(self, lines: int = 25) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
