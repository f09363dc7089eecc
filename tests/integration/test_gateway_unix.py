"""The whole gateway behind Unix sockets: clients, operators, a backend, and the command line."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gateway_load import Asked, Load, ask
from tests.fakes.gateway_process import COMMAND, GatewayProcess, gateway
from tests.fakes.paced_engine import PacedEngine

pytestmark = pytest.mark.asyncio


async def test_everything_works_over_unix_sockets(tmp_path: Path) -> None:
    engine = PacedEngine(unix_path=tmp_path / "engine.sock")
    async with engine.backend, gateway(tmp_path, {"a": engine.backend.url}, unix=True, workers=2) as running:
        sockets = [Path(address.removeprefix("unix:")) for address in (running.clients, running.operators)]
        assert all(stat.S_ISSOCK(path.stat().st_mode) and not path.stat().st_mode & 0o007 for path in sockets)
        async with Load(running.clients, streams=4) as load:
            await load.streaming(4)
            await running.kill("worker 0")
            asked = await ask(running.clients, Asked("after", stream=True, tokens=3, began=0.0))
            assert asked.served, asked
            await load.more(5)
            await load.finish()
        assert {it.failure for it in load.unserved} <= {"reset", "eof"}
        assert await running.states() == {"a": ("serving", ("tiny",))}
        await running.until(lambda: idle(running), "nothing is in flight")
        status = await told(running, "status")
        assert status["in_flight"] == 0
        assert len(status["workers"]) == 2
        after = running.now
        running.signal(signal.SIGTERM)
        await running.event("supervisor.announced", after=after, notice="stopping")
        assert await running.exit() == 0
        assert [path for path in sockets if path.exists()] == []


async def idle(running: GatewayProcess) -> bool:
    return await running.total("pacekeeper_in_flight") == 0


async def told(running: GatewayProcess, *words: str) -> Any:
    """What the command line says about this gateway."""
    arguments = (*words, "--json", "--config", running.config.name)
    process = await asyncio.create_subprocess_exec(
        COMMAND, *arguments, cwd=running.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        out, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    return json.loads(out)
