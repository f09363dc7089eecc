"""What the history store has to tell: typed values, handed to a sink on the event loop.

Names are the struct tags (``history.moved_aside``), which the event catalogue lists; fields hold paths, counts and one
sentence, never a row.  The store itself writes no log.
"""

from __future__ import annotations

from msgspec import Struct


class MovedAside(Struct, frozen=True, kw_only=True, tag="history.moved_aside", tag_field="event"):
    """The file at ``path`` was damaged; it now lies whole at ``moved_to`` and a new one was started."""

    path: str
    moved_to: str
    reason: str


class FileGone(Struct, frozen=True, kw_only=True, tag="history.file_gone", tag_field="event"):
    """Somebody removed or replaced the file at ``path``; the store goes on with what is there now, or a new one."""

    path: str


class Migrated(Struct, frozen=True, kw_only=True, tag="history.migrated", tag_field="event"):
    """The file came from an older release; its schema went from version ``before`` to ``after``."""

    path: str
    before: int
    after: int


class Troubled(Struct, frozen=True, kw_only=True, tag="history.troubled", tag_field="event"):
    """The store stopped working; rows wait in memory, then are dropped.  Told once per trouble."""

    path: str
    problem: str


class Recovered(Struct, frozen=True, kw_only=True, tag="history.recovered", tag_field="event"):
    """The store works again after ``lasted_s``; ``dropped`` rows were lost in all since the start."""

    path: str
    lasted_s: float
    dropped: int


class RowsDropped(Struct, frozen=True, kw_only=True, tag="history.rows_dropped", tag_field="event"):
    """``count`` more rows were lost: too many waited, or (``refused``) they could not be expressed as a row."""

    path: str
    count: int
    refused: bool


class RowUnreadable(Struct, frozen=True, kw_only=True, tag="history.row_unreadable", tag_field="event"):
    """A row that this release cannot read was left out of an answer."""

    path: str
    id: int
    reason: str


StoreEvent = MovedAside | FileGone | Migrated | Troubled | Recovered | RowsDropped | RowUnreadable
