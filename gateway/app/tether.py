"""A child's end of its tether to the supervisor: beats and words out, orders in, and the end when it is cut.

The tether ends when the supervisor is gone, however it went; a child then ends at once, since nobody would ever close
its listeners or replace it.  Two watches: the loop's own, which lets the shell say goodbye to its clients, and a thread
that ends the process when the loop does not get there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Final

from gateway import aio
from gateway.core.tether import BEAT_S, Beat, Drained, Lines, Order, Ready, Word, line

LAST_WORDS_S: Final = 1.0
"""How long after the supervisor's end a child may still exist."""

_READ_BYTES: Final = 4096

log = logging.getLogger("gateway.tether")


class Tether:
    """Owns the child's end while :meth:`run` runs.  Nothing here waits for the supervisor."""

    def __init__(self, sock: socket.socket, *, on_order: Callable[[Order], None], on_lost: Callable[[], None]) -> None:
        """``on_order`` gets each order; ``on_lost`` is called once, when the supervisor is gone."""
        sock.settimeout(0)
        self._sock = sock
        self._on_order = on_order
        self._on_lost = on_lost

    async def run(self) -> None:
        """Beat and obey until the supervisor is gone or the task is cancelled."""
        beating = aio.spawn(aio.every(BEAT_S, self._beat), name="beat")
        try:
            await self._obey()
        finally:
            beating.cancel()
        self._on_lost()

    def ready(self) -> None:
        """Say that this child does its work, or that a reload is through."""
        self._say(Ready())

    def drained(self) -> None:
        """Say that nothing is left."""
        self._say(Drained())

    async def _beat(self) -> None:
        self._say(Beat())

    def _say(self, word: Word) -> None:
        with contextlib.suppress(OSError):  # the supervisor does not read, or is gone: the reading half will tell
            self._sock.send(line(word), socket.MSG_NOSIGNAL)

    async def _obey(self) -> None:
        loop = asyncio.get_running_loop()
        lines = Lines()
        try:
            while data := await loop.sock_recv(self._sock, _READ_BYTES):
                for said in lines.feed(data):
                    if isinstance(said, Order):
                        self._on_order(said)
        except OSError as error:
            log.debug("tether.broken", extra={"reason": str(error)})


def watch_from_aside(fd: int, *, end: Callable[[int], object] = os._exit) -> threading.Thread:
    """Start the thread that ends a process whose loop is stuck when the supervisor goes.

    It calls ``end(1)`` when the tether ``fd`` was cut ``LAST_WORDS_S`` ago and the process is still there.
    """

    def watch() -> None:
        poll = select.poll()
        poll.register(fd, 0)  # nothing but the hang-up, which cannot be masked
        poll.poll()
        threading.Event().wait(LAST_WORDS_S)
        end(1)

    thread = threading.Thread(target=watch, name="tether", daemon=True)
    thread.start()
    return thread
