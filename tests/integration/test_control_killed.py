"""Control killed with SIGKILL, as workers see it: their snapshot is never replaced by a worse one."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from gateway.core.link.messages import Pulse
from tests.fakes.control_bench import config_text, install, worker_end
from tests.fakes.probed_backend import HANG, ProbedBackend, listening

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def started(spec: Path, port: int) -> Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.fakes.control_process",
        str(spec),
        str(port),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"ready\n"
    return process


async def killed(process: Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.communicate()


@pytest.mark.parametrize("busy", [False, True], ids=["engines answer", "engines too busy for probes"])
async def test_a_worker_gets_the_same_fleet_from_the_next_control(tmp_path: Path, busy: bool) -> None:
    async with listening(ProbedBackend(models=["m"])) as a, listening(ProbedBackend(models=["n"])) as b:
        spec, spec_path = install(tmp_path, config_text(tmp_path, a, b))
        port = free_port()
        control = await started(spec_path, port)
        async with worker_end(spec) as worker:
            await worker.until(lambda: worker.states == {"a": "serving", "b": "serving"})
            before = worker.snapshots[-1]
            if busy:
                for fake in (a, b):
                    fake.raw = dict.fromkeys(("/health", "/v1/models", "/metrics", "/version"), HANG)
            await killed(control)
            seen = len(worker.snapshots)
            control = await started(spec_path, port)
            await worker.until(lambda: len(worker.snapshots) > seen)
            first = worker.snapshots[seen]
            await killed(control)
    expected = "unknown" if busy else "serving"
    assert [view.state.value for view in first.backends] == [expected, expected]
    assert [(view.name, view.url, view.models) for view in first.backends] == [
        (view.name, view.url, view.models) for view in before.backends
    ]
    assert [card.id for card in first.cards] == ["m", "n"]
    assert first.generation > before.generation


async def test_pulses_go_on_from_the_next_control(tmp_path: Path) -> None:
    async with listening(ProbedBackend(tokens=5.0)) as fake:
        spec, spec_path = install(tmp_path, config_text(tmp_path, fake))
        port = free_port()
        control = await started(spec_path, port)
        async with worker_end(spec) as worker:
            await worker.until(lambda: any(isinstance(it, Pulse) for it in worker.messages))
            await killed(control)
            fake.tokens = 9.0
            control = await started(spec_path, port)
            await worker.until(
                lambda: any(isinstance(it, Pulse) and it.generation_tokens == 9.0 for it in worker.messages)
            )
            await killed(control)
