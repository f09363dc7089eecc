"""The standard library's logging as event lines, for the supervisor and the workers.

Both tell little (their own faults and decisions) and must start fast, so they do without structlog; the lines look
like control's.  What becomes of a record is the affair of :mod:`records`.  Written from a thread of its own: a blocked
pipe holds nobody up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gateway.telemetry.eventspec import EventName, Level
from gateway.telemetry.lines import JsonLines, encode_fields, timestamp
from gateway.telemetry.records import Told, told
from gateway.telemetry.writer import LineSink, LogWriter

STDERR_FD: Final = 2


class EventLines(logging.Handler):
    """Makes one line of each record: JSON, or for people with ``form="console"``."""

    def __init__(self, sink: LineSink, *, process: str, form: str) -> None:
        """``process`` names the teller in every line ("supervisor", "worker 0")."""
        super().__init__()
        self._sink = sink
        self._process = process
        self._for_people = form == "console"
        self._lines = JsonLines()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line, if it is worth one."""
        if (event := told(record)) is not None:
            self._sink.write(self.line(event, at_wall=record.created))

    def line(self, event: Told, *, at_wall: float) -> bytes:
        """The line of an event, without its newline."""
        fields = {"process": self._process} | event.fields
        if self._for_people:
            return _line_for_people(event, fields, at_wall=at_wall)
        return self._lines.line(event.level, event.name, encode_fields(fields), at_wall=at_wall)


def _line_for_people(event: Told, fields: dict[str, object], *, at_wall: float) -> bytes:
    told_fields = "".join(f"  {key}={value}" for key, value in fields.items())
    text = f"{timestamp(at_wall)[11:23]} {event.level:7} {event.name}{told_fields}"
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text.encode("utf-8", "backslashreplace")


@contextmanager
def stderr_logging(*, process: str, form: str, level: str, fd: int = STDERR_FD) -> Iterator[None]:
    """Lead all logging of this process to ``fd`` until the end of the block, which writes what still waits."""
    root = logging.getLogger()

    def told_drops(count: int) -> bytes:
        return handler.line(Told(Level.WARNING, EventName.LOG_DROPPED.value, {"count": count}), at_wall=time.time())

    writer = LogWriter(fd, told_drops=told_drops)
    handler = EventLines(writer, process=process, form=form)
    level_before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level_before)
        writer.close()
