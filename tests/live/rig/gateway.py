"""The gateway's own command with a configuration written here, and its operators' port.

Everything a run makes (configuration, store, token, log) lies in one folder of that run.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.live.rig import wire
from tests.live.rig.processes import Process, free_port, until

ROOT = Path(__file__).resolve().parents[3]
START_S = 20.0
STOP_S = 20.0
# A record leaves its worker within 50 ms and is written in batches: the history is a little late.
SETTLED_S = 5.0


def command() -> list[str]:
    """The gateway's command, as installed beside this Python unless LIVE_COMMAND names another."""
    return [os.environ.get("LIVE_COMMAND") or str(ROOT / ".venv/bin/pacekeeper")]


class Gateway:
    """One running gateway in front of some backends, each a mapping as in the configuration.

    Owns its processes; `end` leaves none.
    """

    def __init__(
        self,
        folder: Path,
        backends: Sequence[Mapping[str, str]],
        *,
        runtime: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.operators_port = free_port()
        self._config = folder / "gateway.yaml"
        self._env = dict(env or {})
        self._process: Process | None = None
        settings = {
            "clients": {"listen": [f"127.0.0.1:{self.port}"]},
            "operators": {"listen": [f"127.0.0.1:{self.operators_port}"]},
            "auth": {"clients": "none"},
            "pools": [{"name": "tiny", "backends": [dict(backend) for backend in backends]}],
            "store": {"path": str(folder / "history.db")},
            "runtime_dir": str(folder / "run"),
            "parameters": {"prompt_logprobs": 20},  # a test compares what the engine says of it
            **(runtime or {}),
        }
        self._config.write_text(json.dumps(settings, indent=1) + "\n")  # every JSON text is a YAML text

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        if self._process is None:
            raise AssertionError("the gateway was never started")
        return self._process

    def start(self) -> None:
        """Start it and wait until it serves its engines."""
        self._process = Process(
            [*command(), "serve", "--config", str(self._config)],
            log=self.folder.parent / f"{self.folder.name}.log",
            cwd=self.folder,
            env=self._env,
        )

        def up_or_dead() -> bool:
            return self.process.exit_code() is not None or wire.answers(self.port, "/ready")

        try:
            until(up_or_dead, f"gateway {self.folder.name} ready", within_s=START_S)
        finally:
            if not wire.answers(self.port, "/ready"):
                print(self.process.tail())  # noqa: T201 - pytest shows it with the failure
        if (code := self.process.exit_code()) is not None:
            raise AssertionError(f"the gateway exited with {code} instead of serving:\n{self.process.tail()}")

    def end(self) -> int | None:
        """SIGTERM, as an init system does; its exit code, None where it was never started."""
        return self._process.end(patience_s=STOP_S) if self._process is not None else None

    def run(self, *arguments: str) -> Any:
        """A subcommand against this gateway, as an operator types it; its JSON answer."""
        done = subprocess.run(
            [*command(), *arguments, "--config", str(self._config), "--json"],
            capture_output=True,
            check=True,
            timeout=20,
        )
        return json.loads(done.stdout)

    def token(self) -> str:
        """The operators' token that the gateway made at its first start."""
        return (self.folder / "run" / "admin.token").read_text().strip()

    def ask(self, path: str) -> tuple[int, Any]:
        """GET an admin resource: status and JSON."""
        headers = {"Authorization": f"Bearer {self.token()}"}
        status, body = wire.get(self.operators_port, path, headers=headers)
        return status, json.loads(body)

    def admin(self, path: str) -> Any:
        """GET an admin resource that is there."""
        status, answer = self.ask(path)
        if status != 200:
            raise AssertionError(f"{status} for {path}: {answer}")
        return answer

    def settled(self, request_id: str) -> dict[str, Any]:
        """The history's record of a request, waited for until it is written."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            status, row = self.ask(f"/admin/v1/requests/{request_id}")
            if status == 200:
                found.append(row["record"])
            return bool(found)

        until(there, f"request {request_id} in the history", within_s=SETTLED_S, poll_s=0.05)
        return found[0]

    def in_flight(self) -> int:
        """How many requests the gateway itself believes to be open."""
        return int(self.admin("/admin/v1/status")["in_flight"])
