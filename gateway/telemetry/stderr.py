"""The standard library's logging as event lines, for the supervisor and the workers.

Both tell little (their own faults and decisions) and must start fast, so they do without structlog; the lines look
like control's.  The logger's message is the event's name, ``extra`` its fields.  An exception is told by its type and
places, never by its message, which may quote what a peer sent.  Written from a thread of its own: a blocked pipe
holds nobody up.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from gateway.telemetry.writer import LogWriter

STDERR_FD: Final = 2
_FRAMES: Final = 6
"""How many of the innermost frames of an exception are told."""


class LineSink(Protocol):
    """Where finished lines go; :class:`LogWriter` is one."""

    def write(self, line: bytes) -> None:
        """Take one line without its newline; returns at once."""
        ...


class EventLines(logging.Handler):
    """Makes one line of each record: JSON, or for people with ``form="console"``."""

    def __init__(self, sink: LineSink, *, process: str, form: str) -> None:
        """``process`` names the teller in every line ("supervisor", "worker 0")."""
        super().__init__()
        self._sink = sink
        self._process = process
        self._render = _for_people if form == "console" else _json_line
        self._known = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line."""
        fields = {key: value for key, value in vars(record).items() if key not in self._known}
        if record.exc_info and record.exc_info[1] is not None:
            fields |= _told_exception(record.exc_info[1])
        event = {
            "ts": datetime.fromtimestamp(record.created, tz=UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "process": self._process,
        }
        self._sink.write(self._render(event | fields))


def _told_exception(error: BaseException) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return {"error": type(error).__name__, "place": " > ".join(f"{frame.filename}:{frame.lineno}" for frame in frames)}


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
        record = logging.makeLogRecord(
            {"msg": "log.dropped", "levelno": logging.WARNING, "levelname": "WARNING", "count": count}
        )
        kept = _LastLine()
        EventLines(kept, process=process, form=form).emit(record)
        return kept.line

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


class _LastLine:
    """A sink that keeps one line."""

    def __init__(self) -> None:
        self.line = b""

    def write(self, line: bytes) -> None:
        self.line = line
