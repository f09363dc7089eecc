"""One child process as the supervisor holds it: the process, its pidfd and the supervisor's end of its tether.

Not a station.  Signals go through the pidfd, so they never reach a stranger that got the same number.  Nothing here
waits; a child that does not read its tether loses the order, and its silence gives it away.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from gateway.core.supervision.state import Name, Role
from gateway.core.tether import Lines, Order, Word, line

_READ_BYTES = 4096


class Process:
    """Owns one child until :meth:`reap`."""

    def __init__(self, name: Name, child: subprocess.Popen[bytes], tether: socket.socket) -> None:
        self.name = name
        self._child = child
        self._tether = tether
        self._lines = Lines()
        self._pidfd = os.pidfd_open(child.pid)

    @property
    def pid(self) -> int:
        """The process id, for people."""
        return self._child.pid

    @property
    def pidfd(self) -> int:
        """Readable when the process has ended."""
        return self._pidfd

    @property
    def tether(self) -> socket.socket:
        """Readable when the child said something or is gone."""
        return self._tether

    def heard(self) -> list[Word] | None:
        """What the child said since the last call; None when its end of the tether is closed."""
        try:
            data = self._tether.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        return [said for said in self._lines.feed(data) if isinstance(said, Word)]

    def tell(self, order: Order) -> bool:
        """Say ``order``; False when the child is gone or has long not read."""
        try:
            self._tether.send(line(order), socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL; the end shows at the pidfd."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    def reap(self) -> int:
        """Take the exit code of the ended process (negative: the signal) and give everything back."""
        code = self._child.wait()
        os.close(self._pidfd)
        self._tether.close()
        return code


def spawn(
    name: Name,
    command: Sequence[str],
    *,
    slot_fds: Sequence[Sequence[int]],
    operator_fds: Sequence[int],
    environ: Mapping[str, str],
) -> Process:
    """Start the child with the listeners of its role and a fresh tether.  Raises OSError.

    It gets a process group of its own, so that Ctrl-C at a terminal reaches the supervisor alone.
    """
    worker = name.role is Role.WORKER
    slots = [list(fds) for fds in slot_fds] if worker else []
    operators = [] if worker else list(operator_fds)
    ours, theirs = socket.socketpair()
    with ExitStack() as undo:
        undo.enter_context(ours)
        with theirs:
            handed = json.dumps({"slots": slots, "operators": operators, "tether": theirs.fileno()})
            child = subprocess.Popen(  # noqa: S603 - the command line is the plan's
                [*command, *(["--slot", str(name.slot)] if worker else []), "--fds", handed],
                pass_fds=[fd for fds in (*slots, operators, [theirs.fileno()]) for fd in fds],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        ours.settimeout(0)
        process = Process(name, child, ours)
        undo.pop_all()
    return process
