"""What the service manager is told, by the sd_notify protocol: one datagram a message, nothing when nobody listens.

Not a station.  A message that cannot be sent is lost: the service manager's own time limits see to what follows.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Final, assert_never

from gateway.core.supervision.state import Notice

_OWN_VARIABLES: Final = frozenset(
    {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}
)


def for_children(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without what the service manager meant for this process alone."""
    return {name: value for name, value in environ.items() if name not in _OWN_VARIABLES}


class Notifier:
    """Owns the socket to the service manager, if there is one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None
        if self._socket is not None:
            self._socket.settimeout(0)
        self._watchdog_s = _watchdog_s(environ)

    @property
    def watchdog_s(self) -> float | None:
        """How long the service manager waits between signs of life; None: it does not watch."""
        return self._watchdog_s if self._socket is not None else None

    def announce(self, notice: Notice) -> None:
        """Tell a change of the whole service."""
        match notice:
            case Notice.READY:
                self._send("READY=1")
            case Notice.RELOADING:
                now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
                self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}")
            case Notice.STOPPING:
                self._send("STOPPING=1")
            case _:
                assert_never(notice)

    def status(self, sentence: str) -> None:
        """Tell one sentence that is shown beside the service."""
        self._send(f"STATUS={' '.join(sentence.split())}")

    def feed_watchdog(self) -> None:
        """Tell that the service is alive."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError:  # the service manager restarts, or its queue is full: nothing that could be done here
            return


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    period_us = environ.get("WATCHDOG_USEC", "")
    meant_for = environ.get("WATCHDOG_PID", "")
    if not period_us.isdecimal() or int(period_us) == 0 or meant_for not in {"", str(os.getpid())}:
        return None
    return int(period_us) / 1e6
