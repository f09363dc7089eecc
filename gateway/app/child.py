"""What both kinds of child process have in common: arguments, signals, tether, exit code.

The supervisor alone decides when a child ends, so signals that an operator or a terminal sends to a whole group do
nothing here.  A fault that the operator has to mend is one line on standard error and exit code 2; a defect of ours is
told by its type and places and is exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol, TypeVar

import msgspec
import uvloop

from gateway import aio
from gateway.app.spec import InstallSpec, read_spec
from gateway.app.tether import Tether, watch_from_aside
from gateway.core.tether import Order
from gateway.errors import OperatorError
from gateway.telemetry.records import told_exception

ORPHAN_STOP_S: Final = 0.25
"""Deadline for what is open when the supervisor is gone; the tether allows 1 s for all."""

YOUNG_OBJECTS: Final = 2000
"""Objects more than before that start a collection of the young; the interpreter's own number is 700."""

log = logging.getLogger("gateway.child")


class Shell(Protocol):
    """What a child process runs."""

    ready: Callable[[], None]
    """Set before ``run``; called when the child does its work, and when a reload is through."""

    async def run(self) -> int:
        """Work until stopped; returns the exit code."""
        ...

    def stop(self, deadline_s: float) -> None:
        """Have ``run`` end, within ``deadline_s``; a second call can only shorten that."""
        ...


Running = TypeVar("Running", bound=Shell)


class Handed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Descriptors that the supervisor hands over: client listeners per slot, operator listeners, the tether."""

    slots: list[list[int]]
    operators: list[int]
    tether: int


@dataclass(frozen=True, slots=True)
class Given:
    """A child's command line."""

    spec: InstallSpec
    slot: int
    handed: Handed

    @property
    def name(self) -> str:
        """Who this is, in messages."""
        return f"worker {self.slot}" if self.handed.slots else "control"

    def slot_listeners(self) -> dict[int, list[socket.socket]]:
        """Every slot's listeners; one that this worker accepts on anyway is not in another slot's list."""
        own = set(self.handed.slots[self.slot])
        return {
            slot: [_listener(fd) for fd in fds if slot == self.slot or fd not in own]
            for slot, fds in enumerate(self.handed.slots)
        }

    def operator_listeners(self) -> list[socket.socket]:
        """The operators' listeners."""
        return [_listener(fd) for fd in self.handed.operators]


def _listener(fd: int) -> socket.socket:
    os.set_inheritable(fd, False)  # noqa: FBT003 - the standard library's signature
    return socket.socket(fileno=fd)


def given(arguments: Sequence[str]) -> Given:
    """Read the command line that the supervisor made.  Raises GatewayFault, or SystemExit(2) for a human's attempt."""
    parser = argparse.ArgumentParser(description="A child process of pacekeeper; started by its supervisor only.")
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--fds", required=True)
    known = parser.parse_args(arguments)
    return Given(read_spec(known.spec), known.slot, msgspec.json.decode(known.fds, type=Handed))


def live(who: Given, build: Callable[[Given], Running], *, obey: Callable[[Running, Order], None]) -> int:
    """Run the shell that ``build`` makes, on uvloop, to its end; returns the exit code.

    ``obey(shell, order)`` carries out the supervisor's orders.
    """
    _ignore_signals()
    os.set_inheritable(who.handed.tether, False)  # noqa: FBT003 - the standard library's signature
    watch_from_aside(who.handed.tether)
    try:
        return uvloop.run(_live(who, build, obey=obey))
    except OperatorError as error:
        sys.stderr.write(f"pacekeeper: {error.message}\n")
        return 2
    except Exception as error:  # noqa: BLE001 - the task root of the process: told, and the supervisor replaces it
        found = told_exception(error)
        sys.stderr.write(f"pacekeeper: {who.name} ends by a defect: {found['error']} at {found['place']}\n")
        return 1


async def _live(who: Given, build: Callable[[Given], Running], *, obey: Callable[[Running, Order], None]) -> int:
    asyncio.get_running_loop().set_exception_handler(_tell_unawaited)
    shell = build(who)
    with socket.socket(fileno=who.handed.tether) as sock:
        tether = Tether(sock, on_order=lambda order: obey(shell, order), on_lost=lambda: shell.stop(ORPHAN_STOP_S))
        shell.ready = _ready_once_settled(tether.ready)
        nursery = aio.Nursery(_tell_failure)
        nursery.spawn(tether.run(), name="tether")
        try:
            return await shell.run()
        finally:
            tether.drained()
            await nursery.close()


def _ready_once_settled(ready: Callable[[], None]) -> Callable[[], None]:
    """``ready``, with the start's objects out of the collector's sight the first time.

    A full collection goes through every object, and nothing else happens meanwhile: 23 ms in a worker and 22 ms in
    control, of some 45,000 and 65,000 objects, nearly all of them modules and classes that stay.  Without those it is
    3 ms, of what requests hold.  The young are looked at less often, since most die by themselves before; not much
    less, since what a request leaves in a cycle, its body with it, waits for that.
    """

    def settle() -> None:
        if gc.get_freeze_count() == 0:
            gc.collect()
            gc.freeze()
            gc.set_threshold(YOUNG_OBJECTS, 10, 10)
        ready()

    return settle


def _tell_failure(task: str, error: BaseException) -> None:
    """Without its tether a child falls silent, and is replaced for that."""
    log.error("task.failed", extra={"task": task}, exc_info=error)


def _tell_unawaited(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's own words end where they would quote the arguments of a callback: those may hold a client's bytes."""
    what = re.split(r"[<(\n]", str(context.get("message", "")), maxsplit=1)[0].strip()
    log.error("callback.failed", extra={"what": what}, exc_info=context.get("exception"))


def _ignore_signals() -> None:
    """Handlers that do nothing, rather than SIG_IGN, which processes started from here would inherit."""

    def nothing(_number: int, _frame: FrameType | None) -> None:
        return

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, nothing)
