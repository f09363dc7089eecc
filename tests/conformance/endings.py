"""How a server ends after a blow: one shape for what was recorded and for what is watched here.

A long stream and a long request without a stream are open when the blow falls, as in the recordings.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.simulator.card import Held
from gateway.simulator.card import holders as card_holders
from tests.conformance.targets import SimulatedServer, exchange, raw_request, read_answer
from tests.fakes.recordings import RecordedEnd

DATA = Path(__file__).parents[1] / "data" / "endings"
WATCH_S = 3.0
# The requests that are open: the recording of the stream, that of the other, and what makes both of them long.
Pair = tuple[str, str, dict[str, Any]]
_END_WORDS = {"complete": RecordedEnd.COMPLETE, "eof": RecordedEnd.EOF, "error: TimeoutError": RecordedEnd.SILENCE}


@dataclass
class Open:
    """What a request that was open at the blow saw: how it ended, when, and its last bytes."""

    end: RecordedEnd = RecordedEnd.SILENCE
    after_s: float = 0.0
    last: str = ""


@dataclass
class Ending:
    """One ending; times in seconds from the blow, None where it was not seen."""

    stream: Open = field(default_factory=Open)
    nonstream: Open = field(default_factory=Open)
    health: list[str] = field(default_factory=list)  # each new thing that GET /health saw
    refused_s: float | None = None
    exit_code: int | None = None
    exit_s: float | None = None
    core_gone_s: float | None = None
    left: list[str] = field(default_factory=list)  # processes that were still there at the end of the watch


def recorded(name: str) -> Ending:
    """A recorded ending."""
    ending = Ending()
    for text in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        line: dict[str, Any] = json.loads(text)
        match line["what"]:
            case "new connection, GET /health":
                _see(ending, line["saw"], line["t"])
            case "parent process gone":
                ending.exit_code, ending.exit_s = line["exit_code"], line["t"]
            case "child gone" if "EngineCor" in line["child"]:
                ending.core_gone_s = line["t"]
            case "stream" | "nonstream" as which:
                end = next(end for words, end in _END_WORDS.items() if line["end"].startswith(words))
                setattr(ending, which, Open(end, line["t_end_after_blow"], line["last"]))
            case what if what.startswith("children left"):
                ending.left = line["left"]
    return ending


def _see(ending: Ending, saw: str, at_s: float) -> None:
    if "ConnectionRefused" in saw:
        ending.refused_s = at_s if ending.refused_s is None else ending.refused_s
    elif saw.startswith("HTTP"):
        ending.health.append(saw.removeprefix("HTTP/1.1 ")[:3])


CHAT: Final[Pair] = ("chat-stream-count", "chat-nonstream", {"max_tokens": 1900, "ignore_eos": True})


def watched(server: SimulatedServer, blow: str, *, watch_s: float = WATCH_S, pair: Pair = CHAT) -> Ending:
    """Open the two requests, strike, and watch for so long; ``blow`` is term, kill or kill-core."""
    ending = Ending()
    clients = [_Client(server.port, name, pair[2], watch_s=watch_s) for name in pair[:2]]
    core = server.control("/state")["core_pid"]
    clients[0].seen.wait(watch_s)
    began = time.monotonic()
    match blow:
        case "term":
            os.kill(server.process.pid, signal.SIGTERM)
        case "kill":
            os.kill(server.process.pid, signal.SIGKILL)
        case _:
            os.kill(core, signal.SIGKILL)
    while time.monotonic() < began + watch_s:
        at_s = time.monotonic() - began
        _see(ending, _health(server.port), at_s)
        if ending.exit_code is None and (code := server.process.poll()) is not None:
            ending.exit_code, ending.exit_s = code, at_s
        if ending.core_gone_s is None and not lives(core):
            ending.core_gone_s = at_s
        if ending.exit_code is not None and ending.core_gone_s is not None:
            break
        time.sleep(0.01)
    ending.stream, ending.nonstream = (client.result(began) for client in clients)
    ending.left = [name for name, alive in (("parent", server.process.poll() is None), ("core", lives(core))) if alive]
    return ending


def lives(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _health(port: int) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(1)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return connection.recv(4096).split(b"\r\n")[0].decode() or "eof"
    except OSError as error:
        return type(error).__name__


class _Client:
    """One open request in a thread; ``seen`` is set with its first event (or, without a stream, when it is sent)."""

    def __init__(self, port: int, name: str, changes: dict[str, Any], *, watch_s: float) -> None:
        data, request = raw_request(name, **changes)
        self.seen = threading.Event()
        self._ended_s = 0.0
        self._last = b""
        self._end = RecordedEnd.SILENCE
        self._connection = socket.create_connection(("127.0.0.1", port), 5)
        self._connection.settimeout(watch_s + 1)
        self._connection.sendall(data)
        if request["body"].get("stream"):
            while b"delta" not in self._last:
                self._last += self._connection.recv(65536)
        self.seen.set()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        reads, self._end = read_answer_from(self._connection, self._last)
        self._ended_s = time.monotonic()
        self._last = b"".join([self._last, *reads])[-2000:]
        self._connection.close()

    def result(self, began: float) -> Open:
        self._thread.join()
        return Open(self._end, self._ended_s - began, self._last.decode("utf-8", "replace"))


def read_answer_from(connection: socket.socket, seen: bytes) -> tuple[list[bytes], RecordedEnd]:
    """The rest of an answer of which the beginning was read already."""
    if not seen:
        reads, end = read_answer(connection)
        return [read.data for read in reads], end
    rest: list[bytes] = []
    tail = seen
    while True:
        try:
            data = connection.recv(65536)
        except TimeoutError:
            return rest, RecordedEnd.SILENCE
        except ConnectionResetError:
            data = b""
        if not data:
            return rest, RecordedEnd.EOF
        rest.append(data)
        tail = (tail + data)[-64:]
        if tail.endswith(b"0\r\n\r\n"):
            return rest, RecordedEnd.COMPLETE


def running_of(page: bytes) -> float:
    """num_requests_running on a /metrics page."""
    found = re.search(rb"^vllm:num_requests_running\{.*\} (\S+)$", page, re.MULTILINE)
    assert found
    return float(found[1])


def metrics(port: int) -> bytes:
    """A /metrics page."""
    return exchange(port, "get-metrics").body


def holders(card: str) -> list[Held]:
    """Who holds memory of the simulated GPUs."""
    return card_holders(Path(card))


def await_no_holder(card: str) -> None:
    """Wait until the memory is free."""
    deadline = time.monotonic() + 5
    while holders(card):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def await_running(port: int, count: int) -> None:
    """Wait until the engine says that so many requests run."""
    deadline = time.monotonic() + 10
    while running_of(metrics(port)) != count:
        assert time.monotonic() < deadline
