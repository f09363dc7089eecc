"""EngineCore's part of a start: room on the cards, NCCL, and what ends the start there.

Shell.  Checks and takes the cards as one act, so that of two starts at once the second finds them full.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.simulator.card import Card, worker_pids
from gateway.simulator.core_child import CoreChild
from gateway.simulator.engine import SimEngine
from gateway.simulator.launch import Launch
from gateway.simulator.loading import needed_bytes, plan_start
from gateway.simulator.loadlog import Speaker
from gateway.simulator.nccl import Outcome
from gateway.simulator.nccl_log import info_lines
from gateway.simulator.printer import Printer
from gateway.simulator.spec import ServerSpec

_LOST: Final = (  # assumed: the words of torch where the driver has lost a card
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 999: unknown error"
)


class StartFailed(Exception):
    """The start ends with code 1; the text is EngineCore's last line."""


class CoreStart:
    """Owner of the steps of one start; the child is the process's."""

    def __init__(self, launch: Launch, spec: ServerSpec, *, card: Card, engine: SimEngine, child: CoreChild) -> None:
        self._launch = launch
        self._spec = spec
        self._card = card
        self._engine = engine
        self._child = child
        self.is_stuck = False  # in the first all-reduce, which never ends

    async def begin(self) -> None:
        """Start EngineCore if the cards have room; raises StartFailed otherwise."""
        gpus = min(self._launch.preset.box.gpus, self._spec.tensor_parallel)
        share = self._spec.memory_share
        wanted = needed_bytes(self._launch.preset, utilisation=share)
        async with self._card.claim():
            host = self._card.host()
            free = min(host.free_bytes(gpu) for gpu in range(gpus))
            plan = plan_start(self._launch.preset, self._engine.allreduce, free_bytes=free, utilisation=share)
            if any(host.is_lost(gpu) for gpu in range(gpus)):
                raise StartFailed(_LOST)
            if free < wanted and plan.exit_code is not None:
                raise StartFailed(f"ValueError: {plan.reason}")
            await self._child.start(self._card.folder, gpus=gpus, bytes_each=wanted)
        if self._engine.dead:  # by an injection that came before there was a process to die of it
            self._child.crash()
            await asyncio.get_running_loop().create_future()

    async def join(self, printer: Printer) -> None:
        """Wait for NCCL to come up: one that hangs hangs for ever, one that fails raises StartFailed."""
        allreduce = self._engine.allreduce
        pid = next(iter(worker_pids(self._card.folder)), self._child.pid or 0)
        for line in info_lines(allreduce, self._launch.environment, host="simulated", pid=pid):
            printer.raw(f"({Speaker.WORKER}_TP0 pid={pid}) {line}")
        match allreduce.outcome:
            case Outcome.READY:
                return
            case Outcome.HANGS:
                self.is_stuck = True
                self._card.host()  # who holds what
                self._card.change(lambda host: host.latch())
                await asyncio.get_running_loop().create_future()
            case Outcome.FAILS:
                raise StartFailed(f"RuntimeError: NCCL error: {allreduce.reason}")
