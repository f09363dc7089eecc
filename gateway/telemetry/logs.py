"""structlog set-up: one line per event to standard error, as JSON or for people, written off the event loop.

Built once in ``gateway.app``; nothing of structlog's global configuration is touched.  The standard library's loggers
(aiohttp's, asyncio's) are led into the same stream.  Every value is escaped, so a line is always one event.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Final, Literal, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger, Processor, WrappedLogger

from gateway.telemetry.eventspec import EventName
from gateway.telemetry.records import told
from gateway.telemetry.writer import LineSink, LogWriter


def open_writer(fd: int, *, format: Literal["json", "console"]) -> LogWriter:
    """The writer behind the log; it reports its own lost lines in the same format."""

    def told_drops(count: int) -> bytes:
        last_words = _Lines()
        make_log(last_words, format=format, level="warning").warning(EventName.LOG_DROPPED.value, count=count)
        return last_words.line

    return LogWriter(fd, told_drops=told_drops)


def make_log(
    sink: LineSink, *, format: Literal["json", "console"], level: Literal["debug", "info", "warning", "error"]
) -> FilteringBoundLogger:
    """A logger whose lines go to ``sink``; less severe events than ``level`` cost next to nothing."""
    render: list[Processor] = [_to_json] if format == "json" else [_printable, _ForPeople()]
    processors: list[Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts" if format == "json" else "timestamp"),
        structlog.processors.add_log_level,
        *render,
    ]
    logger = structlog.wrap_logger(
        _SinkLogger(sink),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
        cache_logger_on_first_use=False,
    )
    return cast(FilteringBoundLogger, logger.bind())


class LibraryHandler(logging.Handler):
    """Leads the standard library's logging into the log, as :mod:`records` says."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one record."""
        if (event := told(record)) is not None:
            self._log.log(event.level, event.name, **event.fields)


class _SinkLogger:
    """What structlog calls at the end of its chain: every level is a line for the sink."""

    def __init__(self, sink: LineSink) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = sink.write


class _Lines:
    """Keeps the last line."""

    def __init__(self) -> None:
        self.line = b""

    def write(self, line: bytes) -> None:
        self.line = line


_encoder: Final = msgspec.json.Encoder(enc_hook=str, order=None)


def _to_json(_logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]) -> bytes:
    head = {"ts": event.pop("ts", ""), "level": event.pop("level", ""), "event": event.pop("event", "")}
    return _encoder.encode(head | dict(event))


def _printable(_logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters, so that no value can begin a line of its own or steer a terminal."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = value.encode("unicode_escape").decode("ascii")
    return event


class _ForPeople:
    """structlog's console form, as bytes."""

    def __init__(self) -> None:
        self._render = structlog.dev.ConsoleRenderer(colors=False, sort_keys=False)

    def __call__(self, logger: WrappedLogger, method: str, event: MutableMapping[str, Any]) -> bytes:
        return self._render(logger, method, event).encode("utf-8", "backslashreplace")
