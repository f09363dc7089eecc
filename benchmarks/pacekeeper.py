"""How the gateway itself is started for a run: one worker, one pool, the mock engine as its only backend.

It stands on the same contract as anybody's configuration file: nothing here reaches into the gateway.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

BINARY = Path(sys.executable).parent / "pacekeeper"


def missing() -> str | None:
    """Why the gateway cannot be started, if it cannot."""
    return None if BINARY.exists() else "no pacekeeper command beside this Python; run: make setup"


def command(folder: Path, *, engine_port: int, ports: tuple[int, int]) -> list[str]:
    """Write the configuration into `folder` and return the command line; `ports` are the clients' and operators'."""
    clients, operators = ports
    config = {
        "clients": {"listen": [f"127.0.0.1:{clients}"]},
        "operators": {"listen": [f"127.0.0.1:{operators}"]},
        "auth": {"clients": "none"},
        "workers": 1,
        "runtime_dir": str(folder / "run"),
        "pools": [
            {
                "name": "bench",
                "backends": [{"name": "mock", "url": f"http://127.0.0.1:{engine_port}"}],
            }
        ],
        "store": {"path": str(folder / "pacekeeper.db")},
    }
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    return [str(BINARY), "serve", "--config", str(path)]


def role(command_line: str) -> str:
    """Which of the gateway's processes a command line is."""
    for name in ("worker", "control"):
        if f"{name}_main" in command_line:
            return name
    return "supervisor"
