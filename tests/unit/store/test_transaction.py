import sqlite3
from collections.abc import Iterator

import pytest

from gateway.store.transaction import transaction


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    opened.execute("CREATE TABLE t (x)")
    yield opened
    opened.close()


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM t").fetchone()[0])


def test_the_block_is_kept_when_it_ends_well(connection: sqlite3.Connection) -> None:
    with transaction(connection):
        connection.execute("INSERT INTO t VALUES (1)")
    assert not connection.in_transaction
    assert count(connection) == 1


def test_nothing_is_kept_when_it_fails(connection: sqlite3.Connection) -> None:
    def insert_and_fail() -> None:
        with transaction(connection):
            connection.execute("INSERT INTO t VALUES (1)")
            raise KeyError

    with pytest.raises(KeyError):
        insert_and_fail()
    assert not connection.in_transaction
    assert count(connection) == 0


def test_the_failure_is_not_masked_when_the_database_has_rolled_back_by_itself(
    connection: sqlite3.Connection,
) -> None:
    connection.execute("CREATE UNIQUE INDEX one ON t (x)")
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"), transaction(connection):
        connection.execute("INSERT OR ROLLBACK INTO t VALUES (1)")
    assert count(connection) == 1
