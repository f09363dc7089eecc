"""The schema of the history file, as steps from version to version.

``PRAGMA user_version`` counts the steps that a file has had.  A change of the schema is a new step at the end; a step
that was ever released is never edited.  The columns hold what is filtered, sorted and plotted; ``record`` holds
everything, as JSON that any SQLite shell can read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from gateway.store.transaction import transaction

APPLICATION_ID: Final = 0x50414345
"""Marks a file as ours (``PACE``), so that another program's database is never taken for a history."""

_FIRST: Final = (
    """
    CREATE TABLE requests (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        accepted_wall REAL NOT NULL,
        request_id TEXT NOT NULL,
        endpoint TEXT NOT NULL,
        model TEXT NOT NULL,
        pool TEXT NOT NULL,
        backend TEXT NOT NULL,
        profile TEXT NOT NULL,
        key_id TEXT NOT NULL,
        stream INTEGER NOT NULL,
        status INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        error_code TEXT NOT NULL,
        total_s REAL NOT NULL,
        queue_s REAL,
        ttft_s REAL,
        ttfv_s REAL,
        gateway_s REAL,
        prompt_tokens INTEGER,
        completion_tokens INTEGER,
        reasoning_tokens INTEGER,
        decode_tps REAL,
        reasoning_tps REAL,
        visible_tps REAL,
        effective_visible_tps REAL,
        record TEXT NOT NULL
    )
    """,
    "CREATE INDEX requests_by_request_id ON requests (request_id)",
    "CREATE INDEX requests_by_accepted_wall ON requests (accepted_wall)",
    "CREATE INDEX requests_by_total_s ON requests (total_s, model, backend, outcome)",
    "CREATE INDEX requests_by_model ON requests (model)",
    "CREATE INDEX requests_by_backend ON requests (backend)",
    "CREATE INDEX requests_by_outcome ON requests (outcome)",
)

STEPS: Final[tuple[tuple[str, ...], ...]] = (_FIRST,)
"""Statements that lead from version ``i`` to ``i + 1``."""


def version_of(connection: sqlite3.Connection) -> int:
    """How many steps the file has had; 0 for a new one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> int:
    """Bring the file to the newest version and return the version that it had.

    Each step is one transaction, so that a crash leaves the file at a version and never between two.  Raises
    sqlite3.Error with the file as it was before the step that failed.
    """
    before = version_of(connection)
    for version in range(before, len(steps)):
        with transaction(connection):
            # Another process may have done this step while we waited for the lock.
            if version_of(connection) == version:
                for statement in steps[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
    return before
