"""Runs the real supervisor over :mod:`tests.fakes.child_process`, in a process of its own.

``python -m tests.fakes.supervised PLAN`` is that process; :class:`Supervised` starts it, reads the lines that it logs
and waits for them, so that no test has to sleep.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec

from gateway.core.supervision.state import SupervisionPolicy
from gateway.errors import OperatorError
from gateway.supervisor import Plan, run
from tests.fakes.logged_process import PATIENCE_S, LoggedProcess

ROOT = Path(__file__).parents[2]
CHILD = (sys.executable, "-m", "tests.fakes.child_process")
INHERITED = "TEST_INHERITED_FD"


class Supervised(LoggedProcess):
    """The supervisor under test, with its children's journal."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process)
        self.folder = folder

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
    worker: tuple[str, ...] | None = None,
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
        worker=worker or child,
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
