"""``python -m gateway.app.control_main``: the control process.

Started by the supervisor.  Its death cuts no stream: workers go on with their last snapshot until the next one is up.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import assert_never

from gateway.app.child import Given, given, live
from gateway.app.control import ControlShell
from gateway.core.tether import Adopt, Order, Release, Reload, Stop


def obey(shell: ControlShell, order: Order) -> None:
    """Carry out an order of the supervisor."""
    match order:
        case Stop(deadline_s):
            shell.stop(deadline_s)
        case Reload():
            shell.reload()
        case Adopt() | Release():
            pass  # control accepts no clients
        case _:
            assert_never(order)


def main(arguments: Sequence[str]) -> int:
    """Run control; returns the exit code."""

    def build(who: Given) -> ControlShell:
        return ControlShell(who.spec, who.operator_listeners())

    return live(given(arguments), build, obey=obey)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
