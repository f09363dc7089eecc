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
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gateway.telemetry.eventspec import EventName
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
        self._render = _for_people if form == "console" else _json_line

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line, if it is worth one."""
        if (event := told(record)) is not None:
            self._sink.write(self.line(event, at_wall=record.created))

    def line(self, event: Told, *, at_wall: float) -> bytes:
        """The line of an event, without its newline."""
        head = {
            "ts": datetime.fromtimestamp(at_wall, tz=UTC).isoformat().replace("+00:00", "Z"),
            "level": logging.getLevelName(event.level).lower(),
            "event": event.name,
            "process": self._process,
        }
        return self._render(head | event.fields)


def _json_line(event: dict[str, Any]) -> bytes:
    return msgspec.json.encode(event, enc_hook=str)


def _for_people(event: dict[str, Any]) -> bytes:
    fields = "".join(f"  {key}={value}" for key, value in event.items() if key not in {"ts", "level", "event"})
    text = f"{event['ts'][11:23]} {event['level']:7} {event['event']}{fields}"
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text.encode("utf-8", "backslashreplace")


@contextmanager
def stderr_logging(*, process: str, form: str, level: str, fd: int = STDERR_FD) -> Iterator[None]:
    """Lead all logging of this process to ``fd`` until the end of the block, which writes what still waits."""
    root = logging.getLogger()

    def told_drops(count: int) -> bytes:
        return handler.line(Told(logging.WARNING, EventName.LOG_DROPPED.value, {"count": count}), at_wall=time.time())

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
