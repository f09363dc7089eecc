"""The EngineCore process of a simulated engine, from its parent's side: start, end, and hearing of its death.

Shell.  Owner of the child.  The child outlives a parent that is killed; one that ends in order takes it along.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.aio import spawn

_SCRIPT: Final = Path(__file__).with_name("core_process.py")


class CoreChild:
    """Owner of the process; ``on_death()`` is called when it ends without having been ended here."""

    def __init__(self, on_death: Callable[[], None]) -> None:
        self._on_death = on_death
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_wanted_dead = False

    @property
    def pid(self) -> int | None:
        """Its process id, None before the start."""
        return self._process.pid if self._process is not None else None

    async def start(self, card: Path, *, gpus: int, bytes_each: int) -> None:
        """Start it; return when it holds so much memory on each GPU (or has died)."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(_SCRIPT), str(card), str(gpus), str(bytes_each),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        if self._process.stdout is not None:
            await self._process.stdout.readline()
        self._watch = spawn(self._await_end(self._process), name="engine-core")

    async def _await_end(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()
        if not self._is_wanted_dead:
            self._on_death()

    def heed(self) -> None:
        """Have it die of SIGTERM from now on: while loading it ignores that."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGUSR2)

    def crash(self) -> None:
        """Kill it as a crash would: its death will be heard of."""
        self._kill()

    async def end(self) -> None:
        """End it, with the Workers that it has, and wait for its end; nothing where it never was."""
        self._is_wanted_dead = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGUSR1)  # heard while SIGTERM is ignored, too
        if self._watch is not None:
            await self._watch

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
