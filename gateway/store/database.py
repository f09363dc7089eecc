"""One open history file and what can be done with it: write a batch, find, get, trim.

Owned by the store's thread alone; every method blocks on the disk.  Raises sqlite3.Error as it comes: what a failure
means is decided in `diagnose.py`, what follows in `writer.py`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence

from gateway.core.admission.usage import UsageCount, UsageRow
from gateway.core.link.messages import RequestRecord
from gateway.ports import RequestFilter, StoredRequest
from gateway.store.diagnose import Cause, cause_of
from gateway.store.opening import Connect, connect, limited, open_history
from gateway.store.policy import StorePolicy
from gateway.store.queries import SELECT_ONE, SELECT_USAGE, select_requests
from gateway.store.retention import trim
from gateway.store.rows import INSERT, Cell, Unreadable, from_row, to_row
from gateway.store.transaction import transaction


class Database:
    """An open file.

    ``rows`` is how many it holds, ``version`` its schema version, ``version_before`` the one it came with (0: new).
    """

    def __init__(
        self,
        policy: StorePolicy,
        on_unreadable: Callable[[int, str], None],
        *,
        connect_to: Connect = connect,
    ) -> None:
        """Open or create ``policy.path``.  Raises Damaged, StoreUnusable or sqlite3.Error."""
        self._policy = policy
        self._on_unreadable = on_unreadable
        self._connection, self.version_before, self.version = open_history(policy, connect_to)
        try:
            self._identity = self._identity_now()
            self.rows = int(self._connection.execute("SELECT count(*) FROM requests").fetchone()[0])
        except BaseException:
            self.close()
            raise

    def write(self, records: Sequence[RequestRecord]) -> int:
        """Write a batch in one transaction; returns how many of them cannot be expressed as rows and were left out."""
        try:
            rows = [to_row(record) for record in records]
            self._insert(rows)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if cause_of(error) is not Cause.ROW:
                raise
            return self._write_singly(records)
        return 0

    def find(self, wanted: RequestFilter) -> list[StoredRequest]:
        """Rows that match, in the order of `queries.select_requests`; unreadable ones are left out and told."""
        statement, values = select_requests(wanted)
        with limited(self._connection, self._policy.query_s):
            found = self._connection.execute(statement, values).fetchall()
        return self._readable(found)

    def get(self, request_id: str) -> StoredRequest | None:
        """The newest row with that request id."""
        with limited(self._connection, self._policy.query_s):
            found = self._connection.execute(SELECT_ONE, (request_id,)).fetchall()
        return next(iter(self._readable(found)), None)

    def usage(self, since_wall: float) -> list[UsageRow]:
        """What each key has used since then, by model."""
        with limited(self._connection, self._policy.query_s):
            found = self._connection.execute(SELECT_USAGE, (since_wall,)).fetchall()
        return [
            UsageRow(
                key_id=key_id,
                model=model,
                count=UsageCount(
                    requests=requests,
                    prompt_tokens=prompt or 0,
                    completion_tokens=completion or 0,
                    reasoning_tokens=reasoning or 0,
                ),
            )
            for key_id, model, requests, prompt, completion, reasoning in found
        ]

    def trim(self, now_wall: float) -> int:
        """Remove a bounded number of rows that are too old or too much; returns how many."""
        removed = trim(self._connection, self._policy, rows=self.rows, now_wall=now_wall)
        self.rows -= removed
        return removed

    def replaced(self) -> bool:
        """Whether the file at the path is no longer the one that is open: rows would vanish with the old one."""
        try:
            return self._identity_now() != self._identity
        except OSError:
            return True

    def close(self) -> None:
        """Close, folding the write-ahead log into the file; never raises."""
        # A file that cannot even be closed well is found damaged, or whole, at the next opening.
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _identity_now(self) -> tuple[int, int]:
        # By name only: closing a second descriptor of the file would drop SQLite's locks.
        status = self._policy.path.stat()
        return status.st_dev, status.st_ino

    def _insert(self, rows: Sequence[tuple[Cell, ...]]) -> None:
        with transaction(self._connection):
            self._connection.executemany(INSERT, rows)
        self.rows += len(rows)

    def _write_singly(self, records: Sequence[RequestRecord]) -> int:
        # One transaction still: were it cut in the middle, the batch would be written again from its first row.
        refused = 0
        with transaction(self._connection):
            for record in records:
                try:
                    self._connection.execute(INSERT, to_row(record))
                except (sqlite3.Error, ValueError, OverflowError) as error:
                    if cause_of(error) is not Cause.ROW:
                        raise
                    refused += 1
        self.rows += len(records) - refused
        return refused

    def _readable(self, found: Sequence[tuple[int, str]]) -> list[StoredRequest]:
        rows = []
        for row_id, record in found:
            try:
                rows.append(from_row(row_id, record))
            except Unreadable as error:
                self._on_unreadable(row_id, str(error))
        return rows
