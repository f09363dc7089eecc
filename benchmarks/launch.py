"""Starting and ending the processes of a run: pinned to a core, in a session of their own, ended by their ids.

A process gets SIGTERM when the harness itself dies, so nothing outlives a run.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import procstat
from benchmarks.load import chat_request

_PR_SET_PDEATHSIG = 1
_STOP_S = 5.0


class NotStarted(Exception):
    """A process did not come up; the message holds the end of its log."""


def free_ports(count: int) -> list[int]:
    """Port numbers on loopback that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextmanager
def running(
    command: Sequence[str], log: Path, *, core: int | None, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command on one core (None: on any) for the length of the block; its output goes to `log`.

    `environ` None: this process's own.
    """
    libc = ctypes.CDLL(None)

    def prepare_child() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare_child,  # noqa: PLW1509 -- the harness has one thread
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and its descendants: politely, then for certain."""
    family = procstat.tree(process.pid)
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_S)
    for pid in family:
        # Only what still belongs to the session that was made for this process: ids can be used again.
        try:
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def wait_until_answering(process: subprocess.Popen[bytes], port: int, *, log: Path, timeout_s: float = 20) -> None:
    """Return when a short chat request to the port is answered with 200; raise NotStarted otherwise."""
    body = chat_request(tokens=4, stream=False).data.partition(b"\r\n\r\n")[2]
    deadline_s = time.monotonic() + timeout_s
    last = "no answer"
    while time.monotonic() < deadline_s and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            last = f"status {response.status}: {response.read()[:300].decode(errors='replace')}"
            if response.status == 200:
                return
        except (OSError, http.client.HTTPException) as error:
            last = str(error)
        finally:
            connection.close()
        time.sleep(0.1)
    tail = log.read_bytes()[-1500:].decode(errors="replace")
    raise NotStarted(f"{last}; exit code {process.poll()}; its log ends: {tail}")
