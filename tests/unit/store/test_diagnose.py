import errno
import sqlite3
from pathlib import Path

import pytest

from gateway.store.diagnose import Cause, Damaged, cause_of, explain

PATH = Path("var/h.db")


def failure(code: int, message: str = "it failed") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    "error,cause",
    [
        (failure(sqlite3.SQLITE_CORRUPT, "corrupt"), Cause.DAMAGE),
        (failure(sqlite3.SQLITE_CORRUPT | (1 << 8), "corrupt (extended)"), Cause.DAMAGE),
        (failure(sqlite3.SQLITE_NOTADB, "notadb"), Cause.DAMAGE),
        (Damaged("torn"), Cause.DAMAGE),
        (failure(sqlite3.SQLITE_FULL, "full"), Cause.SURROUNDINGS),
        (failure(sqlite3.SQLITE_READONLY_DBMOVED, "readonly_dbmoved"), Cause.SURROUNDINGS),
        (failure(sqlite3.SQLITE_IOERR_WRITE, "ioerr_write"), Cause.SURROUNDINGS),
        (failure(sqlite3.SQLITE_BUSY, "busy"), Cause.SURROUNDINGS),
        (failure(sqlite3.SQLITE_ERROR, "error"), Cause.SURROUNDINGS),
        (OSError(errno.ENOSPC, "No space left"), Cause.SURROUNDINGS),
        (failure(sqlite3.SQLITE_INTERRUPT, "interrupt"), Cause.INTERRUPTED),
        (failure(sqlite3.SQLITE_CONSTRAINT_NOTNULL, "constraint_notnull"), Cause.ROW),
        (failure(sqlite3.SQLITE_TOOBIG, "toobig"), Cause.ROW),
        (OverflowError("int too large"), Cause.ROW),
        (ValueError("surrogates"), Cause.ROW),
    ],
    ids=repr,
)
def test_a_failure_is_sorted_by_what_it_calls_for(error: Exception, cause: Cause) -> None:
    assert cause_of(error) is cause


@pytest.mark.parametrize(
    "code,remedy",
    [
        (sqlite3.SQLITE_FULL, "free space"),
        (sqlite3.SQLITE_READONLY, "writable"),
        (sqlite3.SQLITE_CANTOPEN, "writable"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "another process"),
        (sqlite3.SQLITE_IOERR_FSYNC, "look at the disk"),
    ],
)
def test_the_sentence_names_the_path_the_reason_and_what_to_do(code: int, remedy: str) -> None:
    sentence = explain(failure(code), PATH)
    assert sentence.startswith("var/h.db: it failed; ")
    assert remedy in sentence


def test_a_failure_of_the_system_is_told_with_its_own_path() -> None:
    assert explain(PermissionError(errno.EACCES, "Permission denied", "/var/x"), PATH).startswith(
        "/var/x: Permission denied; "
    )
    assert explain(OSError(errno.EIO, "broken"), PATH).startswith("var/h.db: broken; ")


def test_an_unknown_failure_is_told_without_advice() -> None:
    assert explain(ValueError("odd"), PATH) == "var/h.db: odd"
