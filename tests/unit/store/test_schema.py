import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.rows import COLUMNS
from gateway.store.schema import STEPS, migrate, version_of
from tests.fakes.settled import record_of

CHAIN = (
    ("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)",),
    ("ALTER TABLE notes ADD COLUMN length INTEGER", "UPDATE notes SET length = length(text)"),
    ("CREATE INDEX notes_by_length ON notes (length)",),
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    yield opened
    opened.close()


def schema_of(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    return set(connection.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL"))


@pytest.mark.parametrize("old", range(len(CHAIN) + 1))
def test_a_file_of_any_version_reaches_the_newest_one_step_by_step_with_its_rows(
    connection: sqlite3.Connection, old: int
) -> None:
    migrate(connection, CHAIN[:old])
    if old:
        connection.execute("INSERT INTO notes (text) VALUES ('abc')")
    if old > 1:
        connection.execute("UPDATE notes SET length = 3")

    assert migrate(connection, CHAIN) == old

    assert version_of(connection) == len(CHAIN)
    if old:
        assert connection.execute("SELECT text, length FROM notes").fetchall() == [("abc", 3)]


def test_a_migrated_file_has_the_same_schema_as_a_new_one(connection: sqlite3.Connection) -> None:
    migrate(connection, CHAIN[:1])
    migrate(connection, CHAIN)
    with sqlite3.connect(":memory:", isolation_level=None) as fresh:
        migrate(fresh, CHAIN)
        assert schema_of(connection) == schema_of(fresh)
    fresh.close()


def test_a_step_that_fails_leaves_the_file_at_the_version_before_it(connection: sqlite3.Connection) -> None:
    broken = (*CHAIN[:1], ("ALTER TABLE notes ADD COLUMN length INTEGER", "UPDATE nothing SET x = 1"))
    with pytest.raises(sqlite3.OperationalError, match="nothing"):
        migrate(connection, broken)
    assert version_of(connection) == 1
    assert {sql for kind, sql in schema_of(connection) if kind == "table"} == set(CHAIN[0])
    assert not connection.in_transaction
    assert migrate(connection, CHAIN) == 1


def test_a_step_that_another_process_did_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    ours, theirs = (sqlite3.connect(path, isolation_level=None) for _ in range(2))

    class Late:
        """Looks at the version before the other process migrates, works afterwards."""

        in_transaction = False

        def execute(self, statement: str) -> sqlite3.Cursor:
            if statement == "BEGIN IMMEDIATE" and version_of(theirs) == 0:
                migrate(theirs, CHAIN)
            return ours.execute(statement)

    assert migrate(Late(), CHAIN) == 0  # type: ignore[arg-type]
    assert version_of(ours) == len(CHAIN)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("old", range(len(STEPS) + 1))
def test_the_real_schema_is_reached_from_every_version(connection: sqlite3.Connection, old: int) -> None:
    migrate(connection, STEPS[:old])
    assert migrate(connection) == old
    columns = [row[1] for row in connection.execute("PRAGMA table_info(requests)")]
    assert columns == ["id", *COLUMNS]


def test_no_column_could_hold_a_text_of_a_request(connection: sqlite3.Connection) -> None:
    migrate(connection)
    words = {row[1] for row in connection.execute("PRAGMA table_info(requests)") if row[2] == "TEXT"}
    assert words - {"record"} <= set(record_of().__struct_fields__)
