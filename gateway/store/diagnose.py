"""What a failure of the database means: the file is damaged, we can only wait, or one row was at fault.

Turns SQLite's codes and the system's into one sentence with the path, the reason and what to do.  Pure.
"""

from __future__ import annotations

import sqlite3
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final


class Damaged(Exception):
    """The file is not a readable database: it has to be moved aside.  The message is the reason."""


class Cause(StrEnum):
    """What a failed statement calls for."""

    DAMAGE = "damage"  # move the file aside
    SURROUNDINGS = "surroundings"  # wait, then open again: full, read-only, locked, broken disk
    INTERRUPTED = "interrupted"  # our own time limit
    ROW = "row"  # these values cannot be stored; others can


_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ROW: Final = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG})

_FOLDER: Final = "make the file and its folder writable for the user that runs the gateway, or set store.path elsewhere"
_ADVICE: Final = MappingProxyType(
    {
        sqlite3.SQLITE_FULL: "free space on that disk, or lower store.keep_bytes",
        sqlite3.SQLITE_READONLY: _FOLDER,
        sqlite3.SQLITE_CANTOPEN: _FOLDER,
        sqlite3.SQLITE_PERM: _FOLDER,
        sqlite3.SQLITE_BUSY: "another process holds it: end that process, or set store.path elsewhere",
        sqlite3.SQLITE_LOCKED: "another process holds it: end that process, or set store.path elsewhere",
        sqlite3.SQLITE_IOERR: "look at the disk and its system log",
    }
)


def cause_of(error: Exception) -> Cause:
    """Sort a failure of a statement.

    Errors without an SQLite code come from binding values (too large an integer, a lone surrogate): the row's fault.
    """
    if isinstance(error, Damaged):
        return Cause.DAMAGE
    if isinstance(error, OSError):
        return Cause.SURROUNDINGS
    code = _primary_code(error)
    if code is None or code in _ROW:
        return Cause.ROW
    if code in _DAMAGE:
        return Cause.DAMAGE
    return Cause.INTERRUPTED if code == sqlite3.SQLITE_INTERRUPT else Cause.SURROUNDINGS


def explain(error: Exception, path: Path) -> str:
    """One sentence: path, reason, what to do."""
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}; {_FOLDER}"
    advice = _ADVICE.get(_primary_code(error) or 0)
    return f"{path}: {error}" + (f"; {advice}" if advice else "")


def _primary_code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None
