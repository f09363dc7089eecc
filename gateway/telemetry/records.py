"""A record of the standard library's log as an event: one translation for the logs of all processes.

Our own parts give the event's name as message and its fields as ``extra``; what a library says becomes
``library.message``, warnings and worse only.  An exception is told by its type and places, never by its message, and
of a library's words only the first line is kept: the rest may quote what a peer sent.  Must not write anything.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from typing import Final

from gateway.telemetry.eventspec import EventName, Level

MAX_MESSAGE_CHARS: Final = 500
"""How much of a library's message is kept."""

_FRAMES: Final = 6
"""How many of the innermost frames of an exception are told."""

_OURS: Final = "gateway"

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest was given as ``extra``."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event to be logged."""

    level: Level
    name: str
    fields: dict[str, object]


def told(record: logging.LogRecord) -> Told | None:
    """``record`` as an event, None for a library's small talk."""
    fields: dict[str, object] = {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
    if record.exc_info and record.exc_info[1] is not None:
        fields |= told_exception(record.exc_info[1])
    if record.name.split(".", 1)[0] == _OURS:
        return Told(level_of(record.levelno), record.getMessage(), fields)
    if record.levelno < logging.WARNING:
        return None
    message: dict[str, object] = {
        "logger": record.name,
        "message": record.getMessage().partition("\n")[0][:MAX_MESSAGE_CHARS],
        "severity": record.levelname.lower(),
    }
    if fields:
        message["details"] = fields
    return Told(Level.WARNING, EventName.LIBRARY_MESSAGE.value, message)


def level_of(number: int) -> Level:
    """The level that a number of the standard library stands for."""
    if number >= logging.ERROR:
        return Level.ERROR
    if number >= logging.WARNING:
        return Level.WARNING
    return Level.INFO if number >= logging.INFO else Level.DEBUG


def told_exception(error: BaseException) -> dict[str, str]:
    """Type and places of ``error``, the innermost last."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return {"error": type(error).__name__, "place": " > ".join(f"{frame.filename}:{frame.lineno}" for frame in frames)}
