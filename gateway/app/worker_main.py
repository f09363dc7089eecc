"""``python -m gateway.app.worker_main``: the process of one worker slot.

Started by the supervisor.  Loads the request flow and nothing of control, so that it is up in a moment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import assert_never

from gateway.app.child import Given, given, live
from gateway.app.worker import WorkerShell
from gateway.core.tether import Adopt, Order, Release, Reload, Stop
from gateway.telemetry.stderr import stderr_logging


def obey(shell: WorkerShell, order: Order) -> None:
    """Carry out an order of the supervisor."""
    match order:
        case Adopt(slot):
            shell.adopt(slot)
        case Release(slot):
            shell.release(slot)
        case Stop(deadline_s):
            shell.stop(deadline_s)
        case Reload():
            pass  # workers get their policy from control
        case _:
            assert_never(order)


def main(arguments: Sequence[str]) -> int:
    """Run the worker; returns the exit code."""
    who = given(arguments)

    def build(who: Given) -> WorkerShell:
        return WorkerShell(who.spec, who.slot, who.slot_listeners())

    with stderr_logging(process=who.name, form=who.spec.log_format, level=who.spec.log_level):
        return live(who, build, obey=obey)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
