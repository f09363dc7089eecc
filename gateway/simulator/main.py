"""Runs one simulated engine in this process until its end.

Shell: the composition of process, control port and output.  It says first of all that it is a simulation.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from typing import TextIO

import uvloop

from gateway.simulator.control import Control
from gateway.simulator.launch import Launch
from gateway.simulator.printer import Printer
from gateway.simulator.process import ServerProcess
from gateway.simulator.spec import Defaults, ServerSpec, read_spec
from gateway.simulator.wire import Connection


def server_spec(launch: Launch) -> ServerSpec:
    """Return what the arguments and the preset say about the server; ValueError for an argument that cannot be."""
    preset = launch.preset
    defaults = Defaults(
        model=preset.model.name,
        version=preset.box.vllm_version,
        max_model_len=preset.model.max_model_len,
        gpus=preset.box.gpus,
    )
    return read_spec(launch.arguments, defaults)


def run(launch: Launch, *, output: TextIO | None = None) -> int:
    """Live to the end; return the exit code, or die of the signal that ended it.

    Raises:
        ValueError: for arguments that cannot be read.
    """
    spec = server_spec(launch)
    printer = Printer(output or sys.stdout)
    printer.raw(
        f"*** SIMULATION: no GPU, no model. Preset {launch.preset.name} ({launch.preset.title}); "
        f"the text is invented, the times are computed. Seed {launch.seed}. ***"
    )
    code = uvloop.run(_live(launch, spec, printer))
    if code < 0:  # the death by a signal that the process had to survive for a moment
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


async def _live(launch: Launch, spec: ServerSpec, printer: Printer) -> int:
    process = ServerProcess(launch, spec, printer=printer)
    wrong = [f"{one.drift.kind} {one.drift.magnitude:g}" for one in process.card.host().injections.in_force()]
    if wrong:
        printer.simulation(f"this box is not as new: {', '.join(wrong)}. POST /mend of a control port.")
    control = None
    if launch.control_port is not None:
        app = Control(process, launch)
        loop = asyncio.get_running_loop()
        try:
            control = await loop.create_server(lambda: Connection(app), "127.0.0.1", launch.control_port)
        except OSError as error:
            raise ValueError(f"cannot listen on control port {launch.control_port}: {error.strerror}") from error
    # A collection would show as a gap in every stream at once.
    gc.freeze()
    try:
        return await process.run()
    finally:
        if control is not None:
            control.close()
        if not launch.keeps_card:
            process.card.discard()
