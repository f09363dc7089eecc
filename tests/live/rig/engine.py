"""A real vLLM with the tiny model: started, asked, killed, started again on the same port.

The commands are those in tests/live/engine, the same that a person uses.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.live.rig import wire
from tests.live.rig.processes import Process, free_port, until

FOLDER = Path(__file__).resolve().parent.parent / "engine"
# Three processes import torch one after another: 25 s on idle cores, over a minute on busy ones.
START_S = 240.0
# The engine that gets harmed takes four requests at a time: a fifth stands in its queue.
FEW_SEATS = 4


class Engine:
    """One vLLM on a port of its own. Owns its processes; `end` leaves none."""

    def __init__(self, name: str, logs: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.port = free_port()
        self._logs = logs
        self._arguments = arguments
        self._env = env
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        if self._process is None:
            raise AssertionError(f"engine {self.name} was never started")
        return self._process

    def start(self) -> None:
        """Start it and return at once; `wait` says when it serves."""
        if self._process is not None:
            self._process.sweep()  # a killed parent leaves its children, and they their memory
        self._process = Process(
            [str(FOLDER / "serve.sh"), str(self.port), *self._arguments],
            log=self._logs / f"engine-{self.name}.log",
            cwd=FOLDER,
            env=self._env,
        )

    def wait(self) -> float:
        """Wait until it serves; the seconds waited. Raises with the end of its log when it died."""

        def up_or_dead() -> bool:
            return self.process.exit_code() is not None or wire.answers(self.port, "/health")

        waited_s = until(up_or_dead, f"engine {self.name} serving", within_s=START_S, poll_s=0.1)
        if self.process.exit_code() is not None:
            raise AssertionError(f"engine {self.name} died while starting:\n{self.process.tail()}")
        return waited_s

    def whole(self) -> None:
        """Make sure that it serves: start it again when a test before this one killed it."""
        if self.process.exit_code() is not None or not wire.answers(self.port, "/health"):
            self.start()
            self.wait()

    def kill(self) -> None:
        """SIGKILL the API server, the process that an operator's `kill -9` would name."""
        self.process.send(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all its processes: connections stay open and nothing answers."""
        self.process.send_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_all(signal.SIGCONT)

    def gauge(self, name: str) -> float:
        """The sum of a metric over its labels, from the engine's own /metrics."""
        _, text = wire.get(self.port, "/metrics")
        rows = [row for row in text.decode().splitlines() if row.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(row.rpartition(" ")[2]) for row in rows)

    def running(self) -> int:
        """How many requests the engine works on now."""
        return int(self.gauge("vllm:num_requests_running"))

    def waiting(self) -> int:
        """How many requests stand in the engine's queue now."""
        return int(self.gauge("vllm:num_requests_waiting"))

    def generated_tokens(self) -> int:
        """How many tokens it has generated since its start."""
        return int(self.gauge("vllm:generation_tokens_total"))

    def end(self) -> None:
        if self._process is not None:
            self._process.end()


def installed() -> bool:
    """Whether `install.sh` has been run (or a venv named)."""
    venv = os.environ.get("LIVE_VLLM_VENV") or str(FOLDER.parents[2] / ".live/vllm")
    return (Path(venv) / "bin/vllm").exists()
