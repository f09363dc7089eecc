"""A soak: very many short streams through the gateway as it is served, some clients leaving at a random moment.

`python -m benchmarks.soak` (`make soak`). Memory, descriptors, threads and what is in flight are sampled all the
while; the verdict is about slopes (`soak_verdict`). Exit codes: 0 steady, 1 something grows or answers were wrong,
2 wrong arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop

from benchmarks import launch, machine, pacekeeper, procstat
from benchmarks.load import StreamClient, Tally, chat_request, connect
from benchmarks.results import Machine
from benchmarks.soak_verdict import MIB, Sample, at_rest, growths, told
from gateway import aio

STREAMS = 100_000
_LEAVING = 0.05
_AT_ONCE = 64
_TOKENS = (6, 16)
_PACE_MS = 2.0
_REQUESTS_A_CONNECTION = 20
_GRACE_S = 30.0
_REST_S = 20.0
_SEED = 5
_LOCAL_RESULTS = Path(__file__).parent / "results" / "local"
_GAUGE = re.compile(rb"^(pacekeeper_in_flight|pacekeeper_worker_connections)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


class Soak(msgspec.Struct, kw_only=True):
    """Everything that a soak found."""

    machine: Machine
    streams: int
    complete: int
    left: int
    failures: list[str]
    wall_s: float
    samples: list[Sample]
    at_rest: Sample
    """Once every client had left."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A started gateway and where it listens."""

    pid: int
    clients: int
    operators: int


@contextmanager
def staged(relay_core: int, load_core: int) -> Iterator[Stage]:
    """The gateway on one core, the engine on another together with this process."""
    os.sched_setaffinity(0, {load_core})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pacekeeper-soak-")))
        engine_port, clients, operators = launch.free_ports(3)
        log = folder / "engine.log"
        command = [sys.executable, "-m", "benchmarks.mock_engine", "--port", str(engine_port)]
        engine = stack.enter_context(launch.running(command, log, core=load_core))
        launch.wait_until_answering(engine, engine_port, log=log)
        command = pacekeeper.command(folder, engine_ports=(engine_port,), ports=(clients, operators))
        log = folder / "gateway.log"
        gateway = stack.enter_context(launch.running(command, log, core=relay_core))
        launch.wait_until_answering(gateway, clients, log=log)
        yield Stage(gateway.pid, clients, operators)


class Crowd:
    """Clients that ask one after the other, each again and again, until enough streams have begun."""

    def __init__(self, port: int, streams: int) -> None:
        self.tally = Tally(timing=False)
        self.begun = 0
        self.left = 0
        self._port = port
        self._streams = streams
        self._random = random.Random(_SEED)
        self._requests = {
            tokens: chat_request(tokens=tokens, stream=True, pace_ms=_PACE_MS) for tokens in range(*_TOKENS)
        }

    async def run(self) -> None:
        """All clients, side by side; raises TimeoutError when an answer does not end."""
        async with asyncio.TaskGroup() as group:
            for number in range(_AT_ONCE):
                group.create_task(self._client(), name=f"client-{number}")

    async def _client(self) -> None:
        client: StreamClient | None = None
        asked = 0
        while self.begun < self._streams and len(self.tally.failures) < _AT_ONCE:
            self.begun += 1
            if client is None or asked >= _REQUESTS_A_CONNECTION:
                if client is not None:
                    client.close()
                [client] = await connect(StreamClient, self._port, count=1, tally=self.tally)
                asked = 0
            asked += 1
            if await self._stream(client):
                client = None
        if client is not None:
            client.close()

    async def _stream(self, client: StreamClient) -> bool:
        """One stream; True when the client left in the middle of it."""
        tokens = self._random.randrange(*_TOKENS)
        ended = asyncio.Event()
        client.send(self._requests[tokens], ended.set)
        if self._random.random() >= _LEAVING:
            async with asyncio.timeout(_GRACE_S):
                await ended.wait()
            return False
        # Any moment from the sending of the request to a little after the end that it would have.
        await asyncio.sleep(self._random.random() * (tokens + 1) * _PACE_MS / 1000)
        self.left += not ended.is_set()
        client.close()
        return True


async def look(stage: Stage, *, streams: int, begun_s: float) -> Sample:
    """One sample."""
    roles = {pid: pacekeeper.role(procstat.command_line(pid)) for pid in procstat.tree(stage.pid)}
    gauges = dict.fromkeys((b"pacekeeper_in_flight", b"pacekeeper_worker_connections"), 0.0)
    for name, value in _GAUGE.findall(await _page(stage.operators)):
        gauges[name] += float(value)
    return Sample(
        at_s=time.monotonic() - begun_s,
        streams=streams,
        resident_bytes={role: procstat.memory(pid).resident_bytes for pid, role in roles.items()},
        descriptors={role: _entries(pid, "fd") for pid, role in roles.items()},
        threads={role: _entries(pid, "task") for pid, role in roles.items()},
        in_flight=gauges[b"pacekeeper_in_flight"],
        connections=gauges[b"pacekeeper_worker_connections"],
    )


def _entries(pid: int, folder: str) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/{folder}").iterdir())


async def _page(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(_GRACE_S):
            return await reader.read(-1)
    finally:
        writer.close()


async def _sample_on(stage: Stage, crowd: Crowd, *, samples: list[Sample], every_s: float, streams: int) -> None:
    """Sample until cancelled, and tell how far it is."""
    begun_s = time.monotonic()
    while True:
        sample = await look(stage, streams=crowd.begun, begun_s=begun_s)
        samples.append(sample)
        rate = sample.streams / max(0.001, sample.at_s)
        ahead_s = (streams - sample.streams) / rate if rate else 0.0
        held = ", ".join(
            f"{role} {size / MIB:.1f} MiB {sample.descriptors[role]} fd" for role, size in sample.resident_bytes.items()
        )
        line = (
            f"{sample.streams:,} of {streams:,} streams, {rate:,.0f}/s, {ahead_s:.0f} s to go; "
            f"{sample.in_flight:.0f} in flight; {held}"
        )
        print(line, file=sys.stderr, flush=True)
        await asyncio.sleep(every_s)


async def soak(stage: Stage, *, streams: int, every_s: float) -> tuple[Soak, str]:
    """Run it; what was found, and the table with the verdict."""
    begun_s = time.monotonic()
    before = await look(stage, streams=0, begun_s=begun_s)
    crowd, samples = Crowd(stage.clients, streams), list[Sample]()
    sampling = aio.spawn(
        _sample_on(stage, crowd, samples=samples, every_s=every_s, streams=streams), name="sampling of the soak"
    )
    try:
        await crowd.run()
    finally:
        sampling.cancel()
    after = await _rest(stage, before, begun_s=begun_s)
    found = Soak(
        machine=machine.describe(),
        streams=crowd.begun,
        complete=crowd.tally.complete_streams,
        left=crowd.left,
        failures=crowd.tally.failures[:10],
        wall_s=time.monotonic() - begun_s,
        samples=samples,
        at_rest=after,
    )
    faults = {"at rest": at_rest(before, after), "answers": found.failures}
    return found, told(growths(samples), faults)


async def _rest(stage: Stage, before: Sample, *, begun_s: float) -> Sample:
    """The last sample, once nothing is held any more, or after a while."""
    deadline_s = time.monotonic() + _REST_S
    while True:
        sample = await look(stage, streams=0, begun_s=begun_s)
        if not at_rest(before, sample) or time.monotonic() > deadline_s:
            return sample
        await asyncio.sleep(0.5)


def main() -> int:
    """Soak, print and keep."""
    apart = machine.cores_apart()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--streams", type=int, default=STREAMS, help=f"how many streams ({STREAMS:,})")
    parser.add_argument("--every", type=float, default=0.0, metavar="S", help="seconds between samples (1 to 2)")
    parser.add_argument("--relay-core", type=int, default=apart[0], help="core of the gateway")
    parser.add_argument("--load-core", type=int, default=apart[-1], help="core of the engine and the clients")
    parser.add_argument("--output", type=Path, default=_LOCAL_RESULTS, help="folder of the JSON file")
    options = parser.parse_args()
    every_s = options.every or (2.0 if options.streams >= STREAMS else 0.25)
    with staged(options.relay_core, options.load_core) as stage:
        found, verdict = uvloop.run(soak(stage, streams=options.streams, every_s=every_s))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"soak-{found.machine.date.replace(':', '').replace('+0000', 'Z')}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    print(
        f"{found.streams:,} streams in {found.wall_s:.0f} s: {found.complete:,} complete, "
        f"{found.left:,} left in the middle, {len(found.failures)} failed"
    )
    print(verdict)
    print(f"written: {path}", file=sys.stderr)
    return 0 if verdict.endswith("steady: nothing grows") else 1


if __name__ == "__main__":
    sys.exit(main())
