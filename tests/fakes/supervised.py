"""Runs the real supervisor over :mod:`tests.fakes.child_process`, in a process of its own.

``python -m tests.fakes.supervised PLAN`` is that process; :class:`Supervised` starts it, reads the lines that it logs
and waits for them, so that no test has to sleep.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec

from gateway.core.supervision.state import SupervisionPolicy
from gateway.errors import OperatorError
from gateway.supervisor import Plan, run

ROOT = Path(__file__).parents[2]
CHILD = (sys.executable, "-m", "tests.fakes.child_process")
PATIENCE_S = 20.0
INHERITED = "TEST_INHERITED_FD"


class Supervised:
    """The supervisor under test: its process, its log, its children's journal."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
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

    @property
    def address(self) -> tuple[str, int]:
        (listening,) = [e for e in self.seen if e["event"] == "supervisor.listening"]
        host, _, port = listening["clients"][0].rpartition(":")
        return host, int(port)

    def wish(self, **children: dict[str, Any]) -> None:
        """How children behave that start from now on; ``worker_0={"exit": 3}``."""
        wishes = {name.replace("_", " "): wanted for name, wanted in children.items()}
        (self.folder / "wishes").write_text(json.dumps(wishes))

    def journal(self) -> list[str]:
        """What children noted, without their pids."""
        return [
            re.sub(r" \d+ (?=[a-z]+)", " ", entry, count=1)
            for entry in (self.folder / "journal").read_text().splitlines()
        ]

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

    def ask(self) -> str:
        """Connect once; the name and pid that answer."""
        with socket.create_connection(self.address, timeout=PATIENCE_S) as client, client.makefile() as answer:
            return answer.readline().strip()

    @contextmanager
    def hold(self) -> Iterator[tuple[str, TextIO]]:
        """A connection that its worker keeps open until the stop's deadline: who answered, and what else it says."""
        with socket.create_connection(self.address, timeout=PATIENCE_S) as client, client.makefile() as answer:
            who = answer.readline().strip()
            client.sendall(b"hold\n")
            if answer.readline() != "held\n":
                raise AssertionError(f"{who} does not hold")
            yield who, answer


@contextmanager
def supervised(
    folder: Path,
    *,
    workers: int = 1,
    clients: tuple[str, ...] = ("127.0.0.1:0",),
    wishes: dict[str, dict[str, Any]] | None = None,
    environ: dict[str, str] | None = None,
    inherited: socket.socket | None = None,
    policy: SupervisionPolicy | None = None,
) -> Iterator[Supervised]:
    """Start one; at the end of the block nothing of it is left."""
    (folder / "wishes").write_text(json.dumps(wishes or {}))
    (folder / "journal").touch()
    child = (*CHILD, "--wishes", str(folder / "wishes"))
    plan = Plan(
        workers=workers,
        clients=clients,
        operators=("127.0.0.1:0",),
        worker=child,
        control=child,
        policy=policy or SupervisionPolicy(),
    )
    handed = {} if inherited is None else {INHERITED: str(inherited.fileno())}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.supervised", msgspec.json.encode(plan).decode()],
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **(environ or {}), **handed},
        pass_fds=[] if inherited is None else [inherited.fileno()],
    )
    running = Supervised(folder, process)
    try:
        yield running
    finally:
        process.kill()
        running.await_exit()


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


def main() -> int:
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    if INHERITED in os.environ:  # as a service manager hands a socket over
        os.dup2(int(os.environ[INHERITED]), 3)
        os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "clients"}
    try:
        return run(plan)
    except OperatorError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
