"""Forgetting: rows beyond the age or the size that the operator set, a bounded number at a time.

Called by the store's thread once a tick, inside no transaction.  Old rows go first; the pages they held go back to
the file system in small portions, so that no tick takes long.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from gateway.store.policy import StorePolicy
from gateway.store.transaction import transaction

DAY_S: Final = 86_400.0

_BY_AGE: Final = """
DELETE FROM requests WHERE id IN (
    SELECT id FROM requests WHERE accepted_wall < ? ORDER BY accepted_wall LIMIT ?
)
"""
_OLDEST: Final = "DELETE FROM requests WHERE id IN (SELECT id FROM requests ORDER BY id LIMIT ?)"


def trim(connection: sqlite3.Connection, policy: StorePolicy, *, rows: int, now_wall: float) -> int:
    """Remove what is too old or too much, at most ``policy.trim_records`` rows; returns how many went.

    ``rows`` is how many the table holds: it turns bytes above the limit into a number of rows.  Raises sqlite3.Error.
    """
    with transaction(connection):
        removed = _by_age(connection, policy, now_wall) if policy.keep_days > 0 else 0
        surplus = _surplus_rows(connection, policy, rows - removed) if policy.keep_bytes > 0 else 0
        if surplus > 0 and removed < policy.trim_records:
            removed += connection.execute(_OLDEST, (min(surplus, policy.trim_records - removed),)).rowcount
    _give_back(connection, policy)
    return removed


def used_bytes(connection: sqlite3.Connection) -> int:
    """Size of the pages that hold something."""
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return pages * _pragma(connection, "page_size")


def _by_age(connection: sqlite3.Connection, policy: StorePolicy, now_wall: float) -> int:
    oldest = now_wall - policy.keep_days * DAY_S
    return connection.execute(_BY_AGE, (oldest, policy.trim_records)).rowcount


def _surplus_rows(connection: sqlite3.Connection, policy: StorePolicy, rows: int) -> int:
    used = used_bytes(connection)
    if rows <= 0 or used <= policy.keep_bytes:
        return 0
    # Rounded up: the last few rows above the limit must go too.
    return (used - policy.keep_bytes) * rows // used + 1


def _give_back(connection: sqlite3.Connection, policy: StorePolicy) -> None:
    surplus = _pragma(connection, "freelist_count") - policy.spare_pages
    if surplus > 0:
        # As a script: a plain execute steps this statement once, which frees a single page.
        connection.executescript(f"PRAGMA incremental_vacuum({min(surplus, policy.vacuum_pages)})")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
