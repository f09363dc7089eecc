"""Opening the history file: what is ours and whole is opened, what is damaged is reported, the rest is refused.

Runs in the store's thread.  Changes nothing of a file that it refuses: another program's database, or one that a
newer release wrote.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gateway.errors import StoreUnusable
from gateway.store.diagnose import Cause, Damaged, cause_of, explain
from gateway.store.policy import StorePolicy
from gateway.store.schema import APPLICATION_ID, STEPS, migrate, version_of
from gateway.store.transaction import transaction

Connect = Callable[[Path, float], sqlite3.Connection]
"""Path and busy timeout in seconds -> a connection that begins no transaction of its own accord."""

_MAGIC: Final = b"SQLite format 3\x00"
_BEGINNING_BYTES: Final = 4096
_OPCODES_BETWEEN_LOOKS: Final = 5_000
_SIDE_FILES: Final = ("", "-wal", "-shm")


def connect(path: Path, busy_s: float) -> sqlite3.Connection:
    """The real thing; tests hand in one that fails."""
    return sqlite3.connect(path, timeout=busy_s, isolation_level=None)


class Opened(NamedTuple):
    """An open file, the schema version that it came with (0: it is new), and the one that it has now."""

    connection: sqlite3.Connection
    version_before: int
    version: int


def open_history(policy: StorePolicy, connect_to: Connect = connect) -> Opened:
    """Open or create the file and bring its schema up to date.

    Raises Damaged when the file has to be moved aside, StoreUnusable with path, reason and remedy when it cannot be
    used as it stands.
    """
    path = policy.path
    try:
        _make_file(path)
        connection = connect_to(path, policy.busy_s)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(explain(error, path)) from error
    try:
        _refuse_what_is_not_ours(connection, path)
        _look_for_damage(connection, policy)
        _set_up(connection, policy)
        _claim(connection)
        before = migrate(connection, STEPS)
    except sqlite3.Error as error:
        connection.close()
        if cause_of(error) is Cause.DAMAGE:
            raise Damaged(str(error)) from error
        raise StoreUnusable(explain(error, path)) from error
    except BaseException:
        connection.close()
        raise
    return Opened(connection, before, len(STEPS))


def move_aside(path: Path, now_wall: float) -> Path:
    """Rename the file and what belongs to it, so that nothing is lost; returns the new name.  Raises OSError."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_wall))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    for suffix in reversed(_SIDE_FILES):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    return aside


@contextlib.contextmanager
def limited(connection: sqlite3.Connection, limit_s: float) -> Iterator[None]:
    """Interrupt whatever statement still runs on the connection after ``limit_s``."""
    end = time.monotonic() + limit_s
    connection.set_progress_handler(lambda: time.monotonic() > end, _OPCODES_BETWEEN_LOOKS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


def _make_file(path: Path) -> None:
    # SQLite would make it readable for all; the side files inherit the mode.
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        beginning = os.pread(descriptor, _BEGINNING_BYTES, 0) if regular else b""
    finally:
        os.close(descriptor)
    if not regular:
        raise StoreUnusable(f"{path}: not a regular file; set store.path to a file")
    if _is_text(beginning):
        raise StoreUnusable(f"{path}: a text file, which is no history; set store.path to a file of its own")


def _is_text(beginning: bytes) -> bool:
    """Whether a file that begins so was written by or for people: it is somebody's, not a damaged database."""
    if not beginning or beginning.startswith(_MAGIC):
        return False
    text = beginning.decode("utf-8", "replace").rstrip("\ufffd")
    return all(character.isprintable() or character in "\t\r\n" for character in text)


def _refuse_what_is_not_ours(connection: sqlite3.Connection, path: Path) -> None:
    version = version_of(connection)
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner != APPLICATION_ID and (owner or version or tables):
        raise StoreUnusable(f"{path}: a database of another program; set store.path to a file of its own")
    if version > len(STEPS):
        raise StoreUnusable(
            f"{path}: written by a newer release (schema version {version}, this one knows {len(STEPS)});"
            " start that release, or move the file away"
        )


def _look_for_damage(connection: sqlite3.Connection, policy: StorePolicy) -> None:
    # The check reads every page and cannot be interrupted.  A larger file is opened without: a cut one shows at once,
    # and what else is found later is handled then.
    if policy.path.stat().st_size > policy.check_bytes:
        return
    finding = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if finding != "ok":
        raise Damaged(str(finding))


def _set_up(connection: sqlite3.Connection, policy: StorePolicy) -> None:
    # The size of pages and auto_vacuum count only while the file is empty, so they come before anything writes.
    for statement in (
        f"PRAGMA page_size = {policy.page_bytes}",
        "PRAGMA auto_vacuum = INCREMENTAL",
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = NORMAL",
        "PRAGMA temp_store = MEMORY",
        f"PRAGMA cache_size = -{policy.cache_bytes // 1024}",
        f"PRAGMA journal_size_limit = {policy.log_bytes}",
        f"PRAGMA wal_autocheckpoint = {policy.log_bytes // policy.page_bytes}",
    ):
        connection.execute(statement).fetchall()


def _claim(connection: sqlite3.Connection) -> None:
    # Marks the file as ours before it holds anything, and always writes: a full or read-only disk shows here, at the
    # start, and not at the first request.
    with transaction(connection):
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
