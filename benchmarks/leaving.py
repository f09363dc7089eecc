"""How soon an engine is told that its client has left, and a client that its engine was killed: `benchmarks.leaving`.

Leaving: from the client's close or reset to the end of the connection at the engine, at every moment of a request, for
streams and answers in one piece, on all four APIs; of a request in the gateway's queue, of which no engine knows, to
when its place is free.  Killing: from the SIGKILL of an engine's process to the error event of each stream.  Through
`pacekeeper serve` as anybody starts it.  The harness runs on one loop, so figures err upwards.  Exit codes: 0 all are
within their bounds, 1 one is not, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, cast

import uvloop
import yaml

from benchmarks import machine, pacekeeper
from benchmarks.figures import percentile
from benchmarks.launch import free_ports, running
from benchmarks.leaving_engine import PATHS, Engine, Moment
from gateway.aio import spawn

LEAVE_BOUND_S: Final = 0.2
"""p99 over the four APIs, for every moment and kind of answer."""

KILL_BOUND_S: Final = 0.5
"""The most, for every stream."""

_PATIENCE_S: Final = 40.0
_NAMES: Final = dict(zip(PATHS, ("chat", "completions", "responses", "messages"), strict=True))

ALL: Final = "all four"

Figures = dict[tuple[str, str, str], list[float]]
"""(what, stream or whole, API) -> seconds."""


class NotSeen(Exception):
    """Something that must happen did not."""


def request(path: str, *, model: str, user: str, stream: bool, head: str = "") -> bytes:
    """A request as bytes, on a connection that is its own; ``head`` holds further header lines."""
    prompt = {"/v1/completions": {"prompt": "sea"}, "/v1/responses": {"input": "sea"}}.get(
        path, {"messages": [{"role": "user", "content": "sea"}]}
    )
    body = json.dumps({"model": model, "user": user, "stream": stream, "max_tokens": 9, **prompt}).encode()
    lines = f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n{head}"
    return f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.seen = b""

    @classmethod
    async def connect(cls, port: int) -> Client:
        """Open one."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        """Write a request."""
        self._writer.write(data)

    async def until(self, needle: bytes) -> float:
        """When ``needle`` has been read.  Raises NotSeen."""
        async with asyncio.timeout(_PATIENCE_S):
            while needle not in self.seen:
                data = await self._reader.read(65536)
                if not data:
                    raise NotSeen(f"{needle!r} in {self.seen[-300:]!r}")
                self.seen += data
        return time.perf_counter()

    async def drain(self) -> None:
        """Read and forget, until the connection ends."""
        with suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    def leave(self, *, reset: bool) -> float:
        """Close, or reset; when."""
        transport = self._writer.transport
        if reset:
            connected = cast("socket.socket", transport.get_extra_info("socket"))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        at = time.perf_counter()
        transport.abort()
        return at


class Stage:
    """The gateway, and its engines: `open` serves the model of that name, `narrow` one request at a time."""

    def __init__(self, port: int, engine: Engine, *, narrow: Engine, killed_port: int) -> None:
        self.port = port
        self.engine = engine
        self.narrow = narrow
        self.killed_port = killed_port
        self._numbers = itertools.count()

    async def leave_once(self, moment: Moment, path: str, *, stream: bool, reset: bool) -> float:
        """Seconds until the engine sees that the client of one request has left it."""
        number = str(next(self._numbers))
        self.engine.expect(number)
        client = await Client.connect(self.port)
        client.send(request(path, model="open", user=f"{moment}:{number}", stream=stream))
        async with asyncio.timeout(_PATIENCE_S):
            await self.engine.began[number]
            if stream and moment is Moment.MIDDLE:
                await client.until(b" sea")
            else:
                await asyncio.sleep(0.005)  # what the engine has sent is with the gateway
            left_at = client.leave(reset=reset)
            return await self.engine.gone[number] - left_at

    async def leave_queue_once(self, path: str, *, stream: bool, reset: bool) -> float:
        """Seconds until the place of a request that left the queue is free for another one."""
        probing = await Client.connect(self.port)
        client = await self._queued(path, stream=stream)
        while await self._place_is_free(probing):  # another probe had the place when it came, so it was refused
            client.leave(reset=False)
            client = await self._queued(path, stream=stream)
        left_at = client.leave(reset=reset)
        while not await self._place_is_free(probing):
            if time.perf_counter() - left_at > _PATIENCE_S:
                raise NotSeen("a place in the queue")
        free_at = time.perf_counter()
        probing.leave(reset=False)
        return free_at - left_at

    async def _queued(self, path: str, *, stream: bool) -> Client:
        """A request that waits by now, if there was a place for it."""
        client = await Client.connect(self.port)
        client.send(request(path, model="narrow", user="x", stream=stream))
        await asyncio.sleep(0.01)
        return client

    async def _place_is_free(self, probing: Client) -> bool:
        """Whether a request gets into the queue, which it leaves again at a deadline that is as good as over."""
        probing.seen = b""
        head = "X-Gateway-Deadline: 0.001\r\n"
        probing.send(request(PATHS[0], model="narrow", user="x", stream=False, head=head))
        await probing.until(b"}}")
        return b"deadline_exceeded" in probing.seen

    @asynccontextmanager
    async def beside(self, streams: int) -> AsyncIterator[None]:
        """So many other streams run meanwhile, of all APIs in turn."""
        others = [await Client.connect(self.port) for _ in range(streams)]
        reading = []
        for client, path in zip(others, itertools.cycle(PATHS), strict=False):
            client.send(request(path, model="open", user=f"{Moment.MIDDLE}:", stream=True))
            reading.append(spawn(client.drain(), name="beside"))
        yield
        for client in others:
            client.leave(reset=False)
        await asyncio.gather(*reading)

    @asynccontextmanager
    async def occupied(self) -> AsyncIterator[None]:
        """The one place on the narrow engine is taken."""
        self.narrow.expect("seat")
        sitting = await Client.connect(self.port)
        sitting.send(request(PATHS[0], model="narrow", user=f"{Moment.PREFILL}:seat", stream=True))
        async with asyncio.timeout(_PATIENCE_S):
            await self.narrow.began["seat"]
        yield
        sitting.leave(reset=False)

    async def kill_once(self, folder: Path) -> dict[str, float]:
        """By API, seconds from the SIGKILL of an engine's process to the error event of its stream."""
        command = [sys.executable, "-m", "benchmarks.leaving_engine", str(self.killed_port)]
        with running(command, folder / "engine.log", core=None) as process:
            clients = {path: await self._streaming(path) for path in PATHS}
            killed_at = time.perf_counter()
            os.kill(process.pid, signal.SIGKILL)
            seen = await asyncio.gather(*(it.until(b"before its answer was complete") for it in clients.values()))
            for client in clients.values():
                client.leave(reset=False)
            return {path: at - killed_at for path, at in zip(clients, seen, strict=True)}

    async def _streaming(self, path: str) -> Client:
        """A stream of the engine that is to be killed, once it is there."""
        deadline_s = time.perf_counter() + _PATIENCE_S
        while time.perf_counter() < deadline_s:
            client = await Client.connect(self.port)
            client.send(request(path, model="killed", user=f"{Moment.MIDDLE}:", stream=True))
            await client.until(b"\r\n\r\n")
            if b" 200 " in client.seen[:20]:
                await client.until(b" sea")
                return client
            client.leave(reset=False)
            await asyncio.sleep(0.05)
        raise NotSeen("an engine that serves")


async def measure(stage: Stage, *, rounds: int, kills: int, folder: Path) -> tuple[Figures, Figures]:
    """Figures of leaving and of killing; each round does everything once, so that a busy moment hits all alike."""
    left: Figures = defaultdict(list)
    killed: Figures = defaultdict(list)
    for at in range(rounds):
        for path, stream in itertools.product(PATHS, (True, False)):
            kind = "stream" if stream else "whole"
            for moment in (Moment.HEADERS, Moment.PREFILL, Moment.MIDDLE):
                took_s = await stage.leave_once(moment, path, stream=stream, reset=at % 2 == 1)
                left[moment.value, kind, _NAMES[path]].append(took_s)
            async with stage.occupied():
                took_s = await stage.leave_queue_once(path, stream=stream, reset=at % 2 == 1)
            left[Moment.QUEUED.value, kind, _NAMES[path]].append(took_s)
    for _ in range(kills):
        for path, took_s in (await stage.kill_once(folder)).items():
            killed["engine killed", "stream", _NAMES[path]].append(took_s)
    return left, killed


@contextmanager
def _gateway(folder: Path, ports: dict[str, int], *, client: int, operator: int) -> Iterator[None]:
    config = {
        "clients": {"listen": [f"127.0.0.1:{client}"]},
        "operators": {"listen": [f"127.0.0.1:{operator}"]},
        "auth": {"clients": "none"},
        "workers": 1,
        "runtime_dir": str(folder / "run"),
        "store": {"path": str(folder / "pacekeeper.db")},
        "probes": {"health_s": 0.5},
        "poison": {"deaths": 0},
        "pools": [
            {"name": name, "models": [name], "backends": [{"name": name, "url": f"http://127.0.0.1:{port}"}]}
            | ({"concurrency": 1, "queue": 1} if name == "narrow" else {})
            for name, port in ports.items()
        ],
    }
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    with running([str(pacekeeper.BINARY), "serve", "--config", str(path)], folder / "gateway.log", core=None):
        yield


async def _until_serving(port: int, engine: Engine) -> None:
    """Wait until a request gets through to the engine."""
    engine.expect("first")
    deadline_s = time.perf_counter() + _PATIENCE_S
    while not engine.began["first"].done():
        if time.perf_counter() > deadline_s:
            raise NotSeen("a gateway that serves; its log is gateway.log")
        try:
            client = await Client.connect(port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        client.send(request(PATHS[0], model=engine.model, user=f"{Moment.HEADERS}:first", stream=True))
        await asyncio.wait([engine.began["first"]], timeout=0.1)
        client.leave(reset=False)


async def run(*, rounds: int, kills: int, beside: int) -> tuple[Figures, Figures]:
    """Start everything and measure."""
    client, operator, *ports = free_ports(5)
    named = dict(zip(("open", "narrow", "killed"), ports, strict=True))
    engine, narrow = Engine("open"), Engine("narrow")
    with tempfile.TemporaryDirectory(prefix="pacekeeper-leaving-") as name:
        folder = Path(name)
        servers = [await engine.listen(named["open"]), await narrow.listen(named["narrow"])]
        with _gateway(folder, named, client=client, operator=operator):
            for it in (engine, narrow):
                await _until_serving(client, it)
            stage = Stage(client, engine, narrow=narrow, killed_port=named["killed"])
            try:
                async with stage.beside(beside):
                    return await measure(stage, rounds=rounds, kills=kills, folder=folder)
            finally:
                for server in servers:
                    server.close()


def rows(figures: Figures) -> list[tuple[str, str, str, int, float, float, float]]:
    """What, kind, API, count, and p50, p99 and the most in milliseconds; with a row for all APIs of each kind."""
    by_kind: Figures = defaultdict(list)
    for (what, kind, _), values in figures.items():
        by_kind[what, kind, ALL] += values
    found = []
    for (what, kind, api), values in sorted({**figures, **by_kind}.items()):
        p50, p99 = percentile(values, 0.5) or 0.0, percentile(values, 0.99) or 0.0
        found.append((what, kind, api, len(values), p50 * 1e3, p99 * 1e3, max(values) * 1e3))
    return found


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leaving", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="of leaving in every way (default 50)")
    parser.add_argument("--kills", type=int, default=10, help="of an engine with a stream of each API (default 10)")
    parser.add_argument("--beside", type=int, default=32, help="streams that run meanwhile (default 32)")
    options = parser.parse_args()
    if options.rounds < 1 or options.kills < 1 or options.beside < 0:
        parser.error("rounds and kills are at least 1, streams beside at least 0")
    left, killed = uvloop.run(run(rounds=options.rounds, kills=options.kills, beside=options.beside))
    here = machine.describe()
    load = f"load average {here.load_average:.1f}, {options.beside} streams beside"
    print(f"{here.cpu_model}, {here.cores} cores, Python {here.python}, {load}; {here.date}\n")
    print("| what | answer | API | n | p50 ms | p99 ms | most ms |\n|---|---|---|---:|---:|---:|---:|")
    late = 0
    for figures, bound_s in ((left, LEAVE_BOUND_S), (killed, KILL_BOUND_S)):
        for what, kind, api, count, p50, p99, most in rows(figures):
            print(f"| {what} | {kind} | {api} | {count} | {p50:.1f} | {p99:.1f} | {most:.1f} |")
            late += api == ALL and (p99 if figures is left else most) > bound_s * 1e3
    bounds = f"leaving {LEAVE_BOUND_S * 1e3:.0f} ms at p99, killing {KILL_BOUND_S * 1e3:.0f} ms at most"
    print(f"\nbounds: {bounds}: {'kept' if not late else f'{late} rows are over'}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
