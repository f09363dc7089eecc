"""A disk that fails on demand, under the real SQLite: full, gone mad, or hung.

Hand :meth:`Disk.connect` to the store.  Faults are set from the test's thread and met by the store's at its next
transaction.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

_ROOMY = 1_000_000


class Disk:
    """Faults as plain attributes.

    ``full``: writes fail as on a full disk.  ``error``: raised instead of every transaction.  ``free``: cleared to let
    every transaction hang until it is set again; ``hanging`` is set while one does.
    """

    def __init__(self) -> None:
        self.full = False
        self.error: Exception | None = None
        self.free = threading.Event()
        self.free.set()
        self.hanging = threading.Event()

    def connect(self, path: Path, busy_s: float) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
                if statement == "BEGIN IMMEDIATE":
                    disk.meet(super())
                return super().execute(statement, *values)  # type: ignore[arg-type]

        return sqlite3.connect(path, timeout=busy_s, isolation_level=None, factory=Connection)

    def meet(self, connection: sqlite3.Connection) -> None:
        if not self.free.is_set():
            self.hanging.set()
            self.free.wait(30)
            self.hanging.clear()
        if self.error is not None:
            raise self.error
        # SQLite never sets this below the file's size, so that the next new page meets SQLITE_FULL.
        connection.execute(f"PRAGMA max_page_count = {1 if self.full else _ROOMY}")
