"""A process run by the real ``gateway.app.child`` around a shell that does as its first argument says.

For what only a real process shows: signals, exit codes, and the end of the tether.  Tells on standard output what
happens to it, a line each.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable

from gateway import aio
from gateway.app.child import Given, given, live
from gateway.core.tether import Order, Stop
from gateway.errors import StoreUnusable
from gateway.telemetry.stderr import stderr_logging


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(text: str) -> None:
    raise ValueError(text)


async def fail_later(text: str) -> None:
    await asyncio.sleep(0)
    fail(text)


class LivingShell:
    def __init__(self, behaviour: str) -> None:
        self.ready: Callable[[], None] = lambda: None
        self.behaviour = behaviour
        self.stopped = asyncio.Event()

    async def run(self) -> int:
        match self.behaviour:
            case "operator":
                raise StoreUnusable("/var/lib/x.db: cannot be written")
            case "defect":
                raise RuntimeError("text of a prompt")
            case "disobedient":
                self.ready()
                await asyncio.Event().wait()
            case "stuck":
                self.ready()
                time.sleep(60.0)  # noqa: ASYNC251 - the fault itself
            case "parent":
                child = [sys.executable, "-c", "print(open('/proc/self/status').read())"]
                told = subprocess.run(child, check=True, capture_output=True, text=True).stdout  # noqa: ASYNC221
                tell(next(line for line in told.splitlines() if line.startswith("SigIgn")))
            case "settled":
                before = len(gc.get_objects())
                self.ready()
                tell(f"{len(gc.get_objects()) < before // 10} {gc.get_threshold()[0]}")
            case "careless":
                asyncio.get_running_loop().call_soon(fail, "text of a prompt")
                lost = aio.spawn(fail_later("text of a prompt"), name="lost")
                await asyncio.wait([lost])
                del lost
            case _:
                pass
        self.ready()
        await self.stopped.wait()
        return 7

    def stop(self, deadline_s: float) -> None:
        tell(f"stop {deadline_s:g}")
        self.stopped.set()


def obey(shell: LivingShell, order: Order) -> None:
    if isinstance(order, Stop):
        shell.stop(order.deadline_s)
    else:
        raise RuntimeError("no such order in this test")


if __name__ == "__main__":
    BEHAVIOUR = sys.argv[1]

    def build(_: Given) -> LivingShell:
        return LivingShell(BEHAVIOUR)

    WHO = given(sys.argv[2:])
    with stderr_logging(process=WHO.name, form="json", level="info"):
        STATUS = live(WHO, build, obey=obey)
    sys.exit(STATUS)
