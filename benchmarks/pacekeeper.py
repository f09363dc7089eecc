"""How the gateway itself is started for a run: one worker, one pool, the mock engine as its only backend.

It stands on the same contract as anybody's configuration file: nothing here reaches into the gateway.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

NAME = "pacekeeper"
BINARY = Path(sys.executable).parent / "pacekeeper"
_NOT_INSTALLED = (sys.executable, "-P", "-c", "from gateway.cli.entry import main; main()")


def missing() -> str | None:
    """Why the gateway cannot be started, if it cannot."""
    return None if importlib.util.find_spec("gateway") else "this Python cannot import the gateway; run: make setup"


def command(folder: Path, *, engine_ports: Sequence[int], ports: tuple[int, int], workers: int = 1) -> list[str]:
    """Write the configuration into `folder` and return the command line; `ports` are the clients' and operators'."""
    clients, operators = ports
    backends = [
        {"name": f"mock-{number}", "url": f"http://127.0.0.1:{port}"} for number, port in enumerate(engine_ports)
    ]
    config = {
        "clients": {"listen": [f"127.0.0.1:{clients}"]},
        "operators": {"listen": [f"127.0.0.1:{operators}"]},
        "auth": {"clients": "none"},
        "workers": workers,
        "runtime_dir": str(folder / "run"),
        "pools": [{"name": "bench", "backends": backends}],
        "store": {"path": str(folder / "pacekeeper.db")},
    }
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    start = [str(BINARY)] if BINARY.exists() else _NOT_INSTALLED
    return [*start, "serve", "--config", str(path)]


def role(command_line: str) -> str:
    """Which of the gateway's processes a command line is."""
    for name in ("worker", "control"):
        if f"{name}_main" in command_line:
            return name
    return "supervisor"
