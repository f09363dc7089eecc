"""Control's log: one line per event to standard error, as JSON or for people, written off the event loop.

Built once in ``gateway.app``.  The standard library's loggers (aiohttp's, asyncio's) are led into the same stream.
JSON is made by :mod:`lines`, the form for people by structlog's renderer, none of whose configuration is touched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import msgspec
import structlog

from gateway.telemetry.eventspec import EventName, Level
from gateway.telemetry.lines import JsonLines, encode_fields, timestamp
from gateway.telemetry.records import told
from gateway.telemetry.writer import LineSink, LogWriter

Form = Literal["json", "console"]


class Log(Protocol):
    """Where events are told."""

    def tell(self, level: Level, name: str, data: bytes) -> None:
        """Tell an event; returns at once.  ``data`` are its fields as a JSON object."""
        ...


def open_writer(fd: int, *, format: Form) -> LogWriter:
    """The writer behind the log; it reports its own lost lines in the same format."""

    def told_drops(count: int) -> bytes:
        last_words = _LastLine()
        log = make_log(last_words, format=format, level="warning")
        log.tell(Level.WARNING, EventName.LOG_DROPPED.value, encode_fields({"count": count}))
        return last_words.line

    return LogWriter(fd, told_drops=told_drops)


def make_log(
    sink: LineSink,
    *,
    format: Form,
    level: Literal["debug", "info", "warning", "error"],
    now_wall: Callable[[], float] = time.time,
) -> Log:
    """A log whose lines go to ``sink``; less severe events than ``level`` cost next to nothing."""
    told_levels = frozenset(list(Level)[list(Level).index(Level(level)) :])
    if format == "json":
        return _JsonLog(sink, told_levels, now_wall)
    return _LogForPeople(sink, told_levels, now_wall)


class LibraryHandler(logging.Handler):
    """Leads the standard library's logging into the log, as :mod:`records` says."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one record."""
        if (event := told(record)) is not None:
            self._log.tell(event.level, event.name, encode_fields(event.fields))


class _JsonLog:
    """One object a line."""

    def __init__(self, sink: LineSink, told_levels: frozenset[Level], now_wall: Callable[[], float]) -> None:
        self._write: Final = sink.write
        self._told_levels = told_levels
        self._now_wall = now_wall
        self._lines = JsonLines()

    def tell(self, level: Level, name: str, data: bytes) -> None:
        if level in self._told_levels:
            self._write(self._lines.line(level, name, data, at_wall=self._now_wall()))


class _LogForPeople:
    """structlog's console form."""

    def __init__(self, sink: LineSink, told_levels: frozenset[Level], now_wall: Callable[[], float]) -> None:
        self._write: Final = sink.write
        self._told_levels = told_levels
        self._now_wall = now_wall
        self._render = structlog.dev.ConsoleRenderer(colors=False, sort_keys=False)

    def tell(self, level: Level, name: str, data: bytes) -> None:
        if level not in self._told_levels:
            return
        fields: dict[str, object] = msgspec.json.decode(data)
        event: dict[str, Any] = {"timestamp": timestamp(self._now_wall()), "level": level.value, "event": name}
        event |= {key: _printable(value) for key, value in fields.items()}
        self._write(self._render(None, level.value, event).encode("utf-8", "backslashreplace"))


def _printable(value: object) -> object:
    """Escape control characters, so that no value can begin a line of its own or steer a terminal."""
    if isinstance(value, str) and not value.isprintable():
        return value.encode("unicode_escape").decode("ascii")
    return value


class _LastLine:
    """Keeps the last line."""

    def __init__(self) -> None:
        self.line = b""

    def write(self, line: bytes) -> None:
        self.line = line
