"""How each peer is set up: the quickest way in which a sensible operator would run it for streams.

No access log, no buffering, kept-alive connections to the engine, one process or thread of work, no limit that the
load would meet. Only command lines and configuration files are made here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peers
from benchmarks.vllm_bytes import MODEL

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
  client_body_buffer_size 2m;
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

# http-no-delay: else HAProxy may wait for more before it sends the end of a chunk. No log line, so nothing is logged.
_HAPROXY_CONF = """
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend clients
  bind 127.0.0.1:{port} backlog 2048
  default_backend engine
backend engine
  server mock 127.0.0.1:{engine_port}
"""

_LITELLM_CONF = f"""
model_list:
  - model_name: {MODEL}
    litellm_params:
      model: hosted_vllm/{MODEL}
      api_base: http://127.0.0.1:{{engine_port}}/v1
      api_key: none
litellm_settings:
  set_verbose: false
  telemetry: false
  request_timeout: 600
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a relay is started: a folder of its own, the engine it relays to, its core and its ports."""

    folder: Path
    engine_port: int
    core: int
    port: int
    spare_ports: tuple[int, ...]


def nginx(ground: Ground) -> list[str]:
    """One worker."""
    user = "user root root;" if os.geteuid() == 0 else ""
    conf = ground.folder / "nginx.conf"
    conf.write_text(
        _NGINX_CONF.format(user=user, folder=ground.folder, engine_port=ground.engine_port, port=ground.port)
    )
    return [*peers.program("nginx"), "-p", str(ground.folder), "-c", str(conf)]


def haproxy(ground: Ground) -> list[str]:
    """One thread."""
    conf = ground.folder / "haproxy.cfg"
    conf.write_text(_HAPROXY_CONF.format(engine_port=ground.engine_port, port=ground.port))
    return [*peers.program("haproxy"), "-db", "-f", str(conf)]


def vllm_router(ground: Ground) -> list[str]:
    """It sees one core and makes one thread of work."""
    return [
        *peers.module("vllm-router", "vllm_router.launch_router"),
        *_router(ground),
        *("--log-level", "warning"),
    ]


def sglang_router(ground: Ground) -> list[str]:
    """As vllm-router, of which it is the ancestor."""
    return [*peers.module("sglang-router", "sglang_router.launch_router"), *_router(ground), *_OF_THE_FAMILY]


def smg(ground: Ground) -> list[str]:
    """The continued sglang-router, a process that relays HTTP as it comes."""
    return [*peers.module("smg", "smg", "launch"), *_router(ground), *_OF_THE_FAMILY]


_OF_THE_FAMILY = ("--log-level", "warn", "--queue-size", "8192")


def _router(ground: Ground) -> list[str]:
    return [
        *("--host", "127.0.0.1", "--port", str(ground.port)),
        *("--worker-urls", f"http://127.0.0.1:{ground.engine_port}", "--policy", "round_robin"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(ground.spare_ports[0])),
        *("--max-concurrent-requests", "8192"),
    ]


def litellm(ground: Ground) -> list[str]:
    """One worker, no database, no callbacks; the list of prices that it ships instead of the one it would fetch."""
    conf = ground.folder / "litellm.yaml"
    conf.write_text(_LITELLM_CONF.format(engine_port=ground.engine_port))
    start, *rest = peers.module("litellm", "litellm.proxy.proxy_cli")
    quiet = (
        *("LITELLM_LOG=ERROR", "LITELLM_LOCAL_MODEL_COST_MAP=True", f"HOME={ground.folder}"),
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true",  # as the other relays: anybody may ask
    )
    listen = ("--config", str(conf), "--host", "127.0.0.1", "--port", str(ground.port), "--num_workers", "1")
    return [start, *quiet, *rest, *listen, "--telemetry", "False"]
