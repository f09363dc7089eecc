"""Writes log lines to a descriptor from a thread of its own, so that a blocked pipe never holds the event loop.

Lines wait in a bounded queue; when it is full (the reader of our stderr stands still) the newest are dropped and
counted, and the count is told as soon as a line gets through again.  Order is kept.  All processes of the gateway write
to one descriptor: what is written at once is never more than a pipe takes whole, so that no line is torn by another's.
A descriptor that is closed or broken loses its lines, counted, and nothing else happens.
"""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

QUEUE_LINES: Final = 10_000
"""About 10 MB of wide events: some seconds of full load."""

_BATCH_LINES: Final = 256


class LineSink(Protocol):
    """Where finished lines go; :class:`LogWriter` is one."""

    def write(self, line: bytes) -> None:
        """Take one line without its newline; returns at once."""
        ...


class LogWriter:
    """Owns the queue and the thread.  ``told_drops(count) -> line`` makes the line that reports lost ones."""

    def __init__(self, fd: int, *, told_drops: Callable[[int], bytes], queue_lines: int = QUEUE_LINES) -> None:
        self._fd = fd
        self._told_drops = told_drops
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queue_lines = queue_lines
        self._counting = threading.Lock()
        self._dropped = 0
        self._untold = 0
        self._given_up = False
        self._thread = threading.Thread(target=self._work, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines lost since the start."""
        return self._dropped

    def write(self, line: bytes) -> None:
        """Queue ``line`` (without its newline); returns at once, from any thread."""
        if self._lines.qsize() < self._queue_lines:
            self._lines.put(line)
        else:
            self._lost(1)

    def close(self, *, timeout_s: float = 1.0) -> None:
        """Write what waits, at most ``timeout_s``; what is left then is lost, and the descriptor no longer used."""
        deadline = time.monotonic() + timeout_s
        self._lines.put(None)
        self._thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self._given_up = True

    def _lost(self, count: int) -> None:
        with self._counting:
            self._dropped += count
            self._untold += count

    def _work(self) -> None:
        while True:
            batch, last = self._next_batch()
            with self._counting:
                lost, self._untold = self._untold, 0
            if lost:
                batch.append(self._told_drops(lost))
            for lines in _whole_writes(batch):
                self._put(b"\n".join(lines) + b"\n", lines=len(lines))
            if last or self._given_up:
                return

    def _next_batch(self) -> tuple[list[bytes], bool]:
        """Waits for a line; then all that is there, up to a bound, and whether the end was asked for."""
        line = self._lines.get()
        batch: list[bytes] = []
        while line is not None:
            batch.append(line)
            if len(batch) == _BATCH_LINES:
                return batch, False
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _put(self, data: bytes, *, lines: int) -> None:
        view = memoryview(data)
        while view and not self._given_up:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # somebody who shares our stderr made it non-blocking
                select.select([], [self._fd], [], 1.0)
            except OSError:
                self._lost(lines)
                return


def _whole_writes(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group lines so that each group, newlines included, is at most what a pipe takes whole; a longer line is alone."""
    group: list[bytes] = []
    size = 0
    for line in lines:
        if group and size + len(line) + 1 > select.PIPE_BUF:
            yield group
            group, size = [], 0
        group.append(line)
        size += len(line) + 1
    if group:
        yield group
