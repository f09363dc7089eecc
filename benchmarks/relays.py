"""The relays under test and how each is started: the gateway, its peers, the naive versions.

Each in the quickest set-up that a sensible operator would run for streams: no access log, no buffering, kept-alive
upstream connections, one worker. A relay that is not installed says so; it is never left out in silence.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import launch, pacekeeper, procstat

PEERS_FOLDER = Path(__file__).parent / ".peers"
VLLM_ROUTER = PEERS_FOLDER / "vllm-router" / "bin" / "vllm-router"
UNPACKED_NGINX = PEERS_FOLDER / "nginx" / "usr" / "sbin" / "nginx"
_PREPARE = "not installed; run: python -m benchmarks prepare"

_NGINX_CONF = """
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 10000000;
  client_max_body_size 64m;
  upstream engine {{ server 127.0.0.1:{engine_port}; keepalive 1024; keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a relay is started: a folder of its own, the engine it relays to, its core and its ports."""

    folder: Path
    engine_port: int
    core: int
    port: int
    spare_ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Relay:
    """A way of starting one relay. `missing` says why it cannot run; `role` names a process by its command line."""

    name: str
    note: str
    missing: Callable[[], str | None]
    command: Callable[[Ground], list[str]]
    role: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Target:
    """Something a load can be sent to: a started relay, or the engine itself (`root_pid` None)."""

    name: str
    port: int
    root_pid: int | None = None
    role: Callable[[str], str] = lambda _command_line: "all"

    def roles(self) -> dict[int, str]:
        """The living processes of the relay, each with its role."""
        if self.root_pid is None:
            return {}
        return {pid: self.role(procstat.command_line(pid)) for pid in procstat.tree(self.root_pid)}


def nginx_binary() -> Path | None:
    """The nginx to run: the one unpacked by `prepare`, else the system's."""
    if UNPACKED_NGINX.exists():
        return UNPACKED_NGINX
    found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    return Path(found) if found else None


def _nginx_command(ground: Ground) -> list[str]:
    user = "user root root;" if os.geteuid() == 0 else ""
    conf = ground.folder / "nginx.conf"
    conf.write_text(
        _NGINX_CONF.format(user=user, folder=ground.folder, engine_port=ground.engine_port, port=ground.port)
    )
    return [str(nginx_binary()), "-p", str(ground.folder), "-c", str(conf)]


def _vllm_router_command(ground: Ground) -> list[str]:
    return [
        *(str(VLLM_ROUTER), "--host", "127.0.0.1", "--port", str(ground.port)),
        *("--worker-urls", f"http://127.0.0.1:{ground.engine_port}", "--policy", "round_robin"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(ground.spare_ports[0])),
        *("--log-level", "warning", "--max-concurrent-requests", "8192"),
    ]


def _own(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _one_role(_command_line: str) -> str:
    return "all"


def _nginx_role(command_line: str) -> str:
    return "worker" if command_line.startswith("nginx: worker") else "master"


def relays() -> tuple[Relay, ...]:
    """Every relay that a full run compares, the reference of P1 first."""
    return (
        Relay(
            name="nginx",
            note="C; buffering off, keepalive upstream, HTTP/1.1",
            missing=lambda: None if nginx_binary() else _PREPARE,
            command=_nginx_command,
            role=_nginx_role,
        ),
        Relay(
            name="vllm-router",
            note="Rust; 0.1.17, round robin, log level warning",
            missing=lambda: None if VLLM_ROUTER.exists() else _PREPARE,
            command=_vllm_router_command,
            role=_one_role,
        ),
        Relay(
            name="plain-aiohttp",
            note="the naive relay: aiohttp handler and client under uvloop, nothing on",
            missing=lambda: None,
            command=lambda ground: _own(
                "benchmarks.plain_aiohttp",
                *("--port", str(ground.port), "--upstream", f"http://127.0.0.1:{ground.engine_port}"),
            ),
            role=_one_role,
        ),
        Relay(
            name="byte-pump",
            note="the floor for Python: a uvloop protocol pair that understands nothing",
            missing=lambda: None,
            command=lambda ground: _own(
                "benchmarks.byte_pump",
                *("--port", str(ground.port), "--upstream-port", str(ground.engine_port)),
            ),
            role=_one_role,
        ),
        Relay(
            name="pacekeeper",
            note="the gateway with everything on, one worker",
            missing=pacekeeper.missing,
            command=lambda ground: pacekeeper.command(
                ground.folder, engine_port=ground.engine_port, ports=(ground.port, ground.spare_ports[0])
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
        launch.wait_until_answering(process, port, log=log)
        yield Target(name=relay.name, port=port, root_pid=process.pid, role=relay.role)
