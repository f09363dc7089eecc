"""One transaction as a block: committed at its end, rolled back when anything in it fails.

SQLite's own implicit transactions are off (`opening.connect`), so this is the only place that begins one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock for the block.  Raises sqlite3.Error, with nothing of the block kept."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some failures (a full disk) SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
