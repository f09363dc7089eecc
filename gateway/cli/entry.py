"""Where the command `pacekeeper` begins: before anything is loaded, Ctrl-C is held back until a command can answer it.

Loading the command line takes some tenths of a second; an interrupt in them would end in a traceback.  Must import
nothing that is slow, and decide nothing.
"""

from __future__ import annotations

import signal
from typing import Final

HELD: Final = frozenset({signal.SIGINT, signal.SIGTERM})


def main() -> None:
    """Entry point of the installed command."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    from gateway.cli.main import main as commands  # noqa: PLC0415 - what is slow to load comes after the line above

    commands()


def let_through() -> None:
    """Deliver what was held back, to the handlers that are in place now; also for the processes started later."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
