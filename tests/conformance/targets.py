"""Who is asked: the recordings, a simulated engine, or a real one; each answers the recorded requests.

A check gets a :class:`Target` and asks it by the name of a recording. What comes back is always a ``Recording``, so a
check cannot tell who answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.fakes import recordings
from tests.fakes.recordings import Read, RecordedEnd, Recording

FOLDER = "vllm-0.32-cpu"
PATIENCE_S = 20.0
KEY = "made-up"  # that of the variant `guarded`
# What a file's name says of the server: the beginning, and the arguments that server had beside the common ones.
# `queued` also limits its queue, which nothing in its recording touches; `guarded` was not recorded.
VARIANTS = {
    "interval4": ("--reasoning-parser", "qwen3", "--stream-interval", "4"),
    "interval100": ("--reasoning-parser", "qwen3", "--stream-interval", "100"),
    "noparser": (),
    "queued": ("--reasoning-parser", "qwen3", "--max-num-seqs", "1", "--max-num-queued-reqs", "2"),
    "guarded": (
        "--reasoning-parser",
        "qwen3",
        "--api-key",
        KEY,
        "--enable-request-id-headers",
        "--shutdown-timeout",
        "20",
    ),
    "metrics": ("--reasoning-parser", "qwen3", "--enable-per-request-metrics"),
    "base": ("--reasoning-parser", "qwen3", "--enable-server-load-tracking"),
}
COMMON = (
    "serve", "./tiny-model", "--served-model-name", "tiny", "--max-model-len", "2048", "--enable-auto-tool-choice",
    "--tool-call-parser", "hermes", "--disable-uvicorn-access-log",
)  # fmt: skip


def variant_of(name: str) -> str:
    """The server that a recording is of."""
    return next((variant for variant in VARIANTS if name.startswith(f"{variant}-")), "base")


class Target(Protocol):
    """Answers recorded requests."""

    name: str

    def exchange(self, name: str, **changes: Any) -> Recording:
        """The answer to the request of recording ``name``, with ``changes`` to its body where they can be made."""


class Recorded:
    """The recordings themselves; cannot be asked anything new."""

    name = "recordings"

    def exchange(self, name: str, **changes: Any) -> Recording:
        return recordings.load(f"{FOLDER}/{name}")


class Asked:
    """A server that listens; ``port_of(variant)`` starts or finds the one that a recording needs."""

    def __init__(self, name: str, port_of: Callable[[str], int], *, patience_s: float = PATIENCE_S) -> None:
        self.name = name
        self.port_of = port_of
        self.patience_s = patience_s

    def exchange(self, name: str, **changes: Any) -> Recording:
        return exchange(self.port_of(variant_of(name)), name, patience_s=self.patience_s, **changes)


def raw_request(name: str, **changes: Any) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a recorded request, and its description."""
    path = recordings.FOLDER / FOLDER / f"{name}.jsonl"
    with path.open(encoding="utf-8") as lines:
        request: dict[str, Any] = json.loads(lines.readline())["request"]
    body = b""
    if "body" in request and request["body"] is not None:
        body = json.dumps(request["body"] | changes).encode()
    elif request.get("body_text"):
        body = request["body_text"].encode()
    headers = {key: value for key, value in request["headers"].items() if key != "Content-Length"}
    if body or request["method"] == "POST":
        headers["Content-Length"] = str(len(body))
    head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    return f"{request['method']} {request['path']} HTTP/1.1\r\n{head}\r\n".encode() + body, request


def with_key(data: bytes, key: str) -> bytes:
    """A request with an API key, where there is one."""
    return data.replace(b"Host:", b"Authorization: Bearer %b\r\nHost:" % key.encode(), 1) if key else data


def exchange(port: int, name: str, *, key: str = "", patience_s: float = PATIENCE_S, **changes: Any) -> Recording:
    """Ask a server on loopback what a recording asked, read by read until the answer is whole."""
    data, request = raw_request(name, **changes)
    data = with_key(data, key)
    with socket.create_connection(("127.0.0.1", port), patience_s) as connection:
        connection.settimeout(patience_s)
        connection.sendall(data)
        reads, end = read_answer(connection, is_head=request["method"] == "HEAD")
    return Recording(
        name=name,
        method=request["method"],
        path=request["path"],
        request_body=request.get("body", request.get("body_text")),
        note="",
        reads=tuple(reads),
        end=end,
    )


def read_answer(connection: socket.socket, *, is_head: bool = False) -> tuple[list[Read], RecordedEnd]:
    """Every read of one answer."""
    began = time.monotonic()
    reads: list[Read] = []
    whole = b""
    while True:
        try:
            data = connection.recv(65536)
        except TimeoutError:
            return reads, RecordedEnd.SILENCE
        except ConnectionResetError:
            data = b""
        if not data:
            return reads, RecordedEnd.EOF
        reads.append(Read(time.monotonic() - began, data))
        whole += data
        if is_whole(whole, is_head=is_head):
            return reads, RecordedEnd.COMPLETE


def is_whole(data: bytes, *, is_head: bool) -> bool:
    """Whether an answer has ended as its framing promised."""
    head, blank, body = data.partition(b"\r\n\r\n")
    if not blank:
        return False
    if b"transfer-encoding: chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")), 0)
    return is_head or len(body) >= length


class SimulatedServer:
    """A process of `pacekeeper simulate-engine`; owner: one fixture."""

    name = "simulator"

    def __init__(
        self,
        *arguments: str,
        speed: float = 8.0,
        load_speed: float = 2000.0,
        sigterm: str = "abort",
        card: str = "",
        preset: str = "qwen3-8b-h200",
        environment: Mapping[str, str] | None = None,
        seed: int | None = 1,
        options: Sequence[str] = (),
    ) -> None:
        self.port, self.control_port = free_port(), free_port()
        self.key = KEY if KEY in arguments else ""
        folder = tempfile.mkdtemp(prefix="pacekeeper-simulated-")
        # Not in kill(): a card is used after its first engine's end, and a log read.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.card = card or f"{folder}/card"
        code = "from gateway.cli.main import main; main()"
        self.log = Path(folder) / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-c", code, "simulate-engine", "--preset", preset, "--port", str(self.port),
                    "--control-port", str(self.control_port), "--speed", str(speed), "--load-speed", str(load_speed),
                    *(() if seed is None else ("--seed", str(seed))), "--card", self.card, "--sigterm", sigterm,
                    *options, "--", *COMMON, *arguments,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | dict(environment or {}),
            )  # fmt: skip

    def await_ready(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(self.log.read_text(encoding="utf-8"))
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether a connection is taken."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def control(self, path: str, body: Any = None) -> Any:
        """Ask the control port."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{'POST' if data else 'GET'} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.control_port), PATIENCE_S) as connection:
            connection.sendall(head.encode() + data)
            reads, _ = read_answer(connection)
        return json.loads(b"".join(read.data for read in reads).partition(b"\r\n\r\n")[2])

    def log_bytes(self) -> bytes:
        """What it has printed, to the byte."""
        return self.log.read_bytes()

    def log_text(self) -> str:
        """What it has printed, carriage returns made ends of lines."""
        return self.log.read_text(encoding="utf-8")

    def send(self, number: int) -> None:
        """Send a signal to the process that serves."""
        self.process.send_signal(number)

    def exit_code(self) -> int | None:
        """The code it ended with; None while it runs."""
        return self.process.poll()

    def wait(self, *, within_s: float) -> int:
        """Wait for its end and return the code."""
        return self.process.wait(within_s)

    def core_pid(self) -> int:
        """The process id of EngineCore."""
        pid: int = self.control("/state")["core_pid"]
        return pid

    def left(self) -> list[int]:
        """Whichever of its processes still live."""
        return group_members(self.process.pid)

    def kill(self) -> None:
        """End everything of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait(PATIENCE_S)


def group_members(group: int) -> list[int]:
    """The living processes of a process group, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                state, _, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(its_group) == group and state != "Z":
                    found.append(int(entry.name))
    return sorted(found)


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
