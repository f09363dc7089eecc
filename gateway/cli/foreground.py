"""Runs one command as the terminal's foreground, so that Ctrl-C reaches it and not the program that started it.

For `make demo`: make would take Ctrl-C for a failure although the demo ends well.  Started by path with a bare
interpreter (``python -I -S foreground.py COMMAND...``), so it imports nothing of ours.  Signals that end are passed on;
the exit status is the command's.  Without a terminal, or in the background, it becomes the command.
"""

from __future__ import annotations

import os
import signal
import sys

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TERMINAL = 0


def run(command: list[str]) -> int:
    """Run ``command`` and return its exit status, as a shell would give it."""
    if not os.isatty(_TERMINAL) or os.tcgetpgrp(_TERMINAL) != os.getpgrp():
        os.execv(command[0], command)  # noqa: S606 - our caller's own command
    caller = os.getpgrp()
    # Held until the command has its handlers: `pacekeeper` lets through what came meanwhile.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # whoever is not the foreground may still set it
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped command would leave a terminal that nobody serves
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.tcsetpgrp(_TERMINAL, os.getpgrp())
        signal.pthread_sigmask(signal.SIG_SETMASK, before | {signal.SIGINT, signal.SIGTERM})
        os.execv(command[0], command)  # noqa: S606 - as above
    for number in _HELD:
        signal.signal(number, lambda got, _: os.kill(child, got))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _, status = os.waitpid(child, 0)
    os.tcsetpgrp(_TERMINAL, caller)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
