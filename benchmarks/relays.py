"""The relays under test and how each is started: the gateway, its peers, the naive versions.

How each is set up stands in `setups.py`. A relay that is not installed says so; it is never left out in silence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import launch, pacekeeper, peers, procstat, setups
from benchmarks.setups import Ground


@dataclass(frozen=True, slots=True)
class Relay:
    """A way of starting one relay. `missing` says why it cannot run; `role` names a process by its command line."""

    name: str
    note: str
    missing: Callable[[], str | None]
    command: Callable[[Ground], list[str]]
    role: Callable[[str], str] = lambda _command_line: "all"
    most_streams: int = 4096
    """More streams of 40 tok/s than this are more than it relays in time; larger windows leave it out."""
    faithful: bool = True
    """False: it writes answers anew, so events are counted but not held against what the engine sent."""
    start_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Target:
    """Something a load can be sent to: a started relay, or the engine itself (`root_pid` None)."""

    name: str
    port: int
    root_pid: int | None = None
    role: Callable[[str], str] = lambda _command_line: "all"
    most_streams: int = 4096
    faithful: bool = True

    def roles(self) -> dict[int, str]:
        """The living processes of the relay, each with its role."""
        if self.root_pid is None:
            return {}
        return {pid: self.role(procstat.command_line(pid)) for pid in procstat.tree(self.root_pid)}


def _own(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _nginx_role(command_line: str) -> str:
    return "worker" if command_line.startswith("nginx: worker") else "master"


def _peer(name: str, note: str, command: Callable[[Ground], list[str]]) -> Relay:
    return Relay(name=name, note=note, missing=lambda: peers.missing(name), command=command)


def _naive() -> tuple[Relay, ...]:
    """What is written for comparison and ships with the harness."""
    return (
        Relay(
            name="plain-aiohttp",
            note="the naive relay: aiohttp handler and client under uvloop, nothing on",
            missing=lambda: None,
            command=lambda ground: _own(
                "benchmarks.plain_aiohttp",
                *("--port", str(ground.port), "--upstream", f"http://127.0.0.1:{ground.engine_port}"),
            ),
        ),
        Relay(
            name="byte-pump",
            note="the floor for Python: a uvloop protocol pair that understands nothing",
            missing=lambda: None,
            command=lambda ground: _own(
                "benchmarks.byte_pump",
                *("--port", str(ground.port), "--upstream-port", str(ground.engine_port)),
            ),
        ),
    )


def relays() -> tuple[Relay, ...]:
    """Every relay that a full run compares, the reference of P1 first."""
    litellm = _peer("litellm", "Python; 1.108.7, one worker, no database; writes every answer anew", setups.litellm)
    return (
        replace(_peer("nginx", "C; buffering off, keepalive upstream, HTTP/1.1", setups.nginx), role=_nginx_role),
        _peer("haproxy", "C; 2.6 of Debian, one thread, http-no-delay, connections reused", setups.haproxy),
        _peer("vllm-router", "Rust; 0.1.17, round robin, log level warning", setups.vllm_router),
        _peer("sglang-router", "Rust; 0.3.2, round robin, log level warn", setups.sglang_router),
        _peer("smg", "Rust; 1.13.0, round robin, log level warn", setups.smg),
        replace(litellm, most_streams=64, faithful=False, start_s=60.0),
        *_naive(),
        Relay(
            name=pacekeeper.NAME,
            note="the gateway with everything on, one worker",
            missing=pacekeeper.missing,
            command=lambda ground: pacekeeper.command(
                ground.folder, engine_ports=(ground.engine_port,), ports=(ground.port, ground.spare_ports[0])
            ),
            role=pacekeeper.role,
        ),
    )


@contextmanager
def started(relay: Relay, folder: Path, *, engine_port: int, core: int) -> Iterator[Target]:
    """Run a relay for the length of the block and hand out where it listens; raises launch.NotStarted."""
    own_folder = folder / relay.name
    own_folder.mkdir()
    port, *spare = launch.free_ports(3)
    ground = Ground(folder=own_folder, engine_port=engine_port, core=core, port=port, spare_ports=tuple(spare))
    log = own_folder / "log"
    with launch.running(relay.command(ground), log, core=core) as process:
        launch.wait_until_answering(process, port, log=log, timeout_s=relay.start_s)
        yield Target(
            name=relay.name,
            port=port,
            root_pid=process.pid,
            role=relay.role,
            most_streams=relay.most_streams,
            faithful=relay.faithful,
        )
