"""A whole gateway as it is served: the real command in a folder of its own, on free loopback ports.

Its log is read as it comes, so a test waits for what the gateway says.  Children are found by parentage, never by
name alone.  At the end everything is ended by process id, and it is an error when a process is left, when the log
could not be read, or when a secret of :mod:`tests.fakes.paced_engine` stands in the log or in a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway import aio
from tests.fakes.client import Answer, RawClient
from tests.fakes.logged_process import lives
from tests.fakes.paced_engine import LEAK, SECRETS

COMMAND = Path(sys.executable).with_name("pacekeeper")
PASSED_ON = {
    "PATH",
    "HOME",
    "PYTHONPATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
}
PATIENCE_S = 20.0
POLL_S = 0.02
LINE_BYTES = 1024 * 1024


class GatewayProcess:
    """The command and what it started.  ``log`` grows with each JSON line of its standard error."""

    def __init__(self, folder: Path, *, unix: bool, settings: Mapping[str, Any]) -> None:
        """``settings`` go over the defaults of this file; ``unix``: both listeners are Unix sockets."""
        self.folder = folder
        self.config = folder / "gateway.yaml"
        self.runtime_dir = folder / "run"
        self.store = folder / "history.db"
        self.clients, self.operators = self._addresses(unix)
        self.log: list[dict[str, Any]] = []
        self.raw = b""
        self._settings = dict(settings)
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._pids: set[int] = set()

    def _addresses(self, unix: bool) -> tuple[str, str]:
        if unix:
            return f"unix:{self.folder / 'clients.sock'}", f"unix:{self.folder / 'operators.sock'}"
        clients, operators = free_ports(2)
        return f"127.0.0.1:{clients}", f"127.0.0.1:{operators}"

    # --- life -----------------------------------------------------------------------------------------------------

    def configure(self, backends: Mapping[str, str], **more: Any) -> None:
        """Write the configuration: ``backends`` by name and url, and settings that replace those of the start."""
        listed = [{"name": name, "url": url, "api_key_env": "ENGINE_KEY"} for name, url in backends.items()]
        settings = {
            "clients": {"listen": [self.clients], **self._settings.get("clients", {})},
            "operators": {"listen": [self.operators]},
            "pools": [{"name": "main", "backends": listed}],
            "store": {"path": str(self.store)},
            "runtime_dir": str(self.runtime_dir),
            **{name: value for name, value in self._settings.items() if name != "clients"},
            **more,
        }
        self.config.write_text(json.dumps(settings, indent=1) + "\n")  # every JSON text is a YAML text

    async def start(self) -> None:
        """Start the command and wait until it says that it is ready."""
        environ = {name: value for name, value in os.environ.items() if name in PASSED_ON}
        self._process = await asyncio.create_subprocess_exec(
            COMMAND,
            "serve",
            "--config",
            self.config.name,
            cwd=self.folder,
            env=environ | {"ENGINE_KEY": SECRETS["key"]},
            stdin=asyncio.subprocess.DEVNULL,
            stderr=PIPE,
            limit=LINE_BYTES,
        )
        self._reading = aio.spawn(self._read(self._process), name="log of the gateway")
        await self.event("supervisor.announced", notice="ready")
        for name, pid in self.workers().items():  # on a slow machine they are ready before they know control
            await self.event("worker.joined", slot=name.removeprefix("worker "), pid=str(pid))

    async def _read(self, process: Process) -> None:
        if process.stderr is None:
            raise AssertionError("the gateway has no pipe")
        async for line in process.stderr:
            self.raw += line
            async with self._news:
                if line.startswith(b"{"):
                    self.log.append(json.loads(line))
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()

    async def exit(self, *, within_s: float = PATIENCE_S) -> int:
        """The exit code, once the command and all that it started have closed its log."""
        async with asyncio.timeout(within_s):
            code = await self.process.wait()
            await self.log_ended()
        return code

    async def log_ended(self) -> None:
        """Wait until no process is left that could write to the log."""
        if self._reading is not None:
            await self._reading

    async def close(self) -> None:
        """End everything by process id; raises AssertionError when something had to be ended that should not."""
        if self._process is None:
            return
        self.children()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        try:
            await self.until(lambda: not self.left(), "all processes ended")
        finally:
            for pid in (left := self.left()):
                os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(5.0):
                await self.log_ended()
            if left:
                raise AssertionError(f"left behind: {left}")

    def left(self) -> list[int]:
        """Processes of this gateway that exist: children ever seen, and any that names its runtime directory."""
        named = str(self.runtime_dir).encode()
        naming = [pid for pid in _pids() if pid != os.getpid() and named in _command_line(pid)]
        return sorted({pid for pid in (*self._pids, *naming) if lives(pid) and named in _command_line(pid)})

    # --- processes ------------------------------------------------------------------------------------------------

    @property
    def process(self) -> Process:
        """The command itself, which is the supervisor."""
        if self._process is None:
            raise AssertionError("the gateway was never started")
        return self._process

    def children(self) -> dict[str, int]:
        """Process ids of control and workers now, by the supervisor's names for them."""
        found = {}
        for pid in _pids():
            if _parent(pid) != self.process.pid or not lives(pid):
                continue
            words = _command_line(pid).split(b"\0")
            if b"gateway.app.control_main" in words:
                found["control"] = pid
            elif b"gateway.app.worker_main" in words:
                found[f"worker {int(words[words.index(b'--slot') + 1])}"] = pid
        self._pids.update(found.values())
        return found

    def workers(self) -> dict[str, int]:
        """The workers among the children."""
        return {name: pid for name, pid in self.children().items() if name.startswith("worker")}

    def send(self, child: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to one child; returns its process id."""
        pid = self.children()[child]
        os.kill(pid, number)
        return pid

    async def kill(self, child: str) -> int:
        """SIGKILL one child; returns its process id once all its threads are dead, and so its sockets closed."""
        after, pid = self.now, self.send(child)
        await self.event("supervisor.decided", after=after, reason=f"{child} ended with signal 9")
        return pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command, as an operator or an init system does."""
        self.process.send_signal(number)

    # --- what it says ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The log's length, to wait for what comes after it."""
        return len(self.log)

    def events(self, name: str, *, after: int = 0, **fields: str) -> list[dict[str, Any]]:
        """Logged events of that name whose fields hold the given texts (as regular expressions)."""
        return [
            event
            for event in self.log[after:]
            if event["event"] == name and all(re.search(want, str(event.get(key))) for key, want in fields.items())
        ]

    async def event(self, name: str, *, after: int = 0, within_s: float = PATIENCE_S, **fields: str) -> dict[str, Any]:
        """The first such event from index ``after`` of the log on, waited for."""
        try:
            async with asyncio.timeout(within_s), self._news:
                await self._news.wait_for(lambda: self.events(name, after=after, **fields) or self._silent)
        except TimeoutError:
            pass
        found = self.events(name, after=after, **fields)
        if not found:
            raise AssertionError(f"no {name} {fields} in {self.told_since(after)}")
        return found[0]

    def told_since(self, after: int) -> str:
        """The log for people: without settled requests, and with what is no JSON (an operator's fault, a crash)."""
        other = [event for event in self.log[after:] if event["event"] != "request.settled"]
        plain = [line for line in self.raw.decode(errors="replace").splitlines() if not line.startswith("{")]
        return "\n".join([*map(str, other[-20:]), *plain])

    @property
    def _silent(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    # --- what operators ask ---------------------------------------------------------------------------------------

    async def get(self, path: str) -> Answer:
        """GET from the operators' listener, with the admin token."""
        token = (self.runtime_dir / "admin.token").read_text().strip()
        return await get(self.operators, path, headers={"Authorization": f"Bearer {token}"})

    async def admin(self, path: str) -> Any:
        """GET an admin resource that is there."""
        answer = await self.get(path)
        if answer.status != 200:
            raise AssertionError(f"{answer.status} for {path}: {answer.body!r}")
        return json.loads(answer.body)

    async def metrics(self) -> list[Sample]:
        """Every sample of ``/metrics``."""
        page = (await self.get("/metrics")).body.decode()
        return [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    async def total(self, name: str, **labels: str) -> float:
        """The sum of a metric over all samples with these labels."""
        samples = await self.metrics()
        return sum(it.value for it in samples if it.name == name and labels.items() <= it.labels.items())

    async def states(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """State and models of each backend."""
        items = (await self.admin("/admin/v1/backends"))["items"]
        return {item["name"]: (item["state"], tuple(item["models"])) for item in items}

    async def history(self) -> list[dict[str, Any]]:
        """Every record in the history, newest first."""
        found: list[dict[str, Any]] = []
        before: int | None = 0
        while before is not None:
            page = await self.admin(f"/admin/v1/requests?limit=500&before={before}")
            found += [item["record"] for item in page["items"]]
            before = page["next"]
        return found

    async def until(
        self, holds: Callable[[], Awaitable[object] | object], what: str, *, within_s: float = PATIENCE_S
    ) -> None:
        """Wait for what only asking again can tell; ``holds`` may fail to connect meanwhile."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            try:
                found = holds()
                if await found if isinstance(found, Awaitable) else found:
                    return
            except OSError:
                pass
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"not in {within_s:g} s: {what}")
            await asyncio.sleep(POLL_S)

    # --- what must stand nowhere ----------------------------------------------------------------------------------

    def leaks(self) -> list[str]:
        """Where a secret stands: in the log, or in a file that the gateway wrote."""
        token_file = self.runtime_dir / "admin.token"
        token = token_file.read_bytes().strip() if token_file.exists() else b""
        written = [self.store.with_name(self.store.name + end) for end in ("", "-wal", "-shm", "-journal")]
        written += [path for path in self.runtime_dir.rglob("*") if path.is_file() and path != token_file]
        places = {"log": self.raw} | {str(path): path.read_bytes() for path in written if path.exists()}
        return [name for name, data in places.items() if LEAK.search(data) or (token and token in data)]


async def get(address: str, path: str, *, headers: Mapping[str, str] | None = None) -> Answer:
    """One GET on a fresh connection to a listen address."""
    async with connection(address) as client:
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        await client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n".encode())
        return await client.answer()


@asynccontextmanager
async def connection(address: str) -> AsyncIterator[RawClient]:
    """A client on a fresh connection, which is gone at the end of the block."""
    client = RawClient(*await connected(address))
    try:
        yield client
    finally:
        client.writer.transport.abort()


async def connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A fresh connection to a listen address."""
    if address.startswith("unix:"):
        return await asyncio.open_unix_connection(address.removeprefix("unix:"))
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def free_ports(number: int) -> list[int]:
    """Loopback ports that nobody listens on, outside of the range that outgoing connections get theirs from."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < number:
            port = random.randrange(10_000, lowest)
            with suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
        return found


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@asynccontextmanager
async def gateway(
    folder: Path, backends: Mapping[str, str], *, unix: bool = False, **settings: Any
) -> AsyncIterator[GatewayProcess]:
    """A served gateway; at the end of the block nothing of it is left, and nothing secret has been written."""
    running = GatewayProcess(folder, unix=unix, settings=settings)
    running.configure(backends)
    try:
        await running.start()
        yield running
    finally:
        await running.close()
    if leaks := running.leaks():
        raise AssertionError(f"secrets stand in {leaks}")
