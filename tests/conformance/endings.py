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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.simulator.card import Held
from gateway.simulator.card import holders as card_holders
from tests.conformance.servers import Server
from tests.conformance.targets import exchange, raw_request, read_answer, with_key
from tests.fakes.recordings import RecordedEnd, Recording

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
    health: list[tuple[float, str]] = field(default_factory=list)  # when GET /health saw which status
    refused_s: float | None = None
    exit_code: int | None = None
    exit_s: float | None = None
    core_gone_s: float | None = None
    insisted_s: list[float] = field(default_factory=list)  # further signals, which found it still there
    left: list[str] = field(default_factory=list)  # processes that were still there at the end of the watch


def recorded(name: str) -> Ending:
    """A recorded ending."""
    ending = Ending()
    for text in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        line: dict[str, Any] = json.loads(text)
        match str(line["what"]):
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
            case _:
                pass
    return ending


def _see(ending: Ending, saw: str, at_s: float) -> None:
    if "ConnectionRefused" in saw:
        ending.refused_s = at_s if ending.refused_s is None else ending.refused_s
    elif saw.startswith("HTTP"):
        ending.health.append((at_s, saw.removeprefix("HTTP/1.1 ")[:3]))


CHAT: Final[Pair] = ("chat-stream-count", "chat-nonstream", {"max_tokens": 1900, "ignore_eos": True})


def watched(
    server: Server,
    blow: str,
    *,
    watch_s: float = WATCH_S,
    pair: Pair = CHAT,
    on_blow: Callable[[], object] = lambda: None,
) -> Ending:
    """Open the two requests, strike, and watch for so long; ``blow`` is term, insist, kill or kill-core.

    ``insist`` is a SIGTERM and, each second that both requests are still open, another one (a server that is on its way
    out would be killed by it).
    """
    ending = Ending()
    clients = [_Client(server, name, pair[2], watch_s=watch_s) for name in pair[:2]]
    core = server.core_pid()
    await_running(server.port, 2)
    began = time.monotonic()
    match blow:
        case "term" | "insist":
            server.send(signal.SIGTERM)
        case "kill":
            server.send(signal.SIGKILL)
        case _:
            os.kill(core, signal.SIGKILL)
    on_blow()
    while time.monotonic() < began + watch_s:
        at_s = time.monotonic() - began
        _see(ending, _health(server.port), at_s)
        is_due = blow == "insist" and at_s > len(ending.insisted_s) + 1
        if is_due and server.exit_code() is None and all(client.is_open for client in clients):
            server.send(signal.SIGTERM)
            ending.insisted_s.append(at_s)
        if ending.exit_code is None and (code := server.exit_code()) is not None:
            ending.exit_code, ending.exit_s = code, at_s
        if ending.core_gone_s is None and not lives(core):
            ending.core_gone_s = at_s
        if ending.exit_code is not None and ending.core_gone_s is not None:
            break
        time.sleep(0.01)
    ending.left = [name for name, alive in (("parent", server.exit_code() is None), ("core", lives(core))) if alive]
    ending.stream, ending.nonstream = (client.result(began) for client in clients)
    return ending


def drained(server: Server, names: Sequence[str], *, watch_s: float, tokens: int) -> tuple[Ending, list[Recording]]:
    """Watch a server that was told to stop and to let its requests finish; and what new requests got meanwhile."""
    refusals: list[Recording] = []

    def ask() -> None:
        deadline = time.monotonic() + 5
        while exchange(server.port, "chat-stream-plain", key=server.key, max_tokens=1).status == 200:
            assert time.monotonic() < deadline
        refusals.extend(exchange(server.port, name, key=server.key) for name in names)

    asking = threading.Thread(target=ask, daemon=True)
    pair = (*CHAT[:2], CHAT[2] | {"max_tokens": tokens})
    ending = watched(server, "term", watch_s=watch_s, pair=pair, on_blow=asking.start)
    asking.join(watch_s)
    return ending, refusals


def lives(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def resident_bytes(pids: list[int]) -> int:
    """The memory that these processes have, what they share counted for each."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def _health(port: int) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(1)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return connection.recv(4096).split(b"\r\n")[0].decode() or "eof"
    except OSError as error:
        return type(error).__name__


class _Client:
    """One open request in a thread; made once its first event is there (or, without a stream, once it is sent)."""

    def __init__(self, server: Server, name: str, changes: dict[str, Any], *, watch_s: float) -> None:
        data, request = raw_request(name, **changes)
        self._ended_s = 0.0
        self._last = b""
        self._end = RecordedEnd.SILENCE
        self._connection = socket.create_connection(("127.0.0.1", server.port), 5)
        self._connection.settimeout(watch_s + 1)
        self._connection.sendall(with_key(data, server.key))
        if request["body"].get("stream"):
            while b"delta" not in self._last:
                self._last += self._connection.recv(65536)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether its answer has not ended."""
        return self._thread.is_alive()

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


def value_of(page: bytes, series: str) -> float:
    """The value of a series on a /metrics page, named with its labels, or of the only one with this name."""
    labels = "" if "{" in series else r"(?:\{[^}]*\})?"
    found = re.findall(rf"^{re.escape(series)}{labels} (\S+)$", page.decode(), re.MULTILINE)
    assert len(found) == 1, (series, found)
    return float(found[0])


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


def await_none_left(server: Server) -> None:
    """Wait until no process of it lives."""
    deadline = time.monotonic() + 10
    while server.left():
        assert time.monotonic() < deadline, server.left()
        time.sleep(0.05)


def await_line(server: Server, mark: str) -> None:
    """Wait until its log has this text."""
    deadline = time.monotonic() + 120
    while mark not in server.log_text():
        assert time.monotonic() < deadline
        assert server.exit_code() is None, server.log_text()
        time.sleep(0.02)


def await_running(port: int, count: int, *, within_s: float = 10.0, series: str = "vllm:num_requests_running") -> None:
    """Wait until the engine says that so many requests run (or wait, by another ``series``)."""
    deadline = time.monotonic() + within_s
    while value_of(metrics(port), series) != count:
        assert time.monotonic() < deadline
