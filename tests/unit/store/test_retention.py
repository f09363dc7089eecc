import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.store.opening import open_history
from gateway.store.policy import StorePolicy
from gateway.store.retention import DAY_S, trim, used_bytes
from gateway.store.rows import INSERT, to_row
from tests.fakes.settled import record_of

NOW = 1_700_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    opened, *_ = open_history(StorePolicy(path=path))
    yield opened
    opened.close()


def fill(connection: sqlite3.Connection, count: int, *, ages_days: tuple[float, ...] = (0.0,)) -> None:
    connection.execute("BEGIN")
    for at in range(count):
        age_s = ages_days[at % len(ages_days)] * DAY_S
        connection.execute(INSERT, to_row(record_of(f"r{at}", accepted_wall=NOW - age_s)))
    connection.execute("COMMIT")


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM requests").fetchone()[0])


def trim_until_quiet(connection: sqlite3.Connection, policy: StorePolicy) -> list[int]:
    portions: list[int] = []
    while removed := trim(connection, policy, rows=count(connection), now_wall=NOW):
        portions.append(removed)
    return portions


def test_rows_older_than_the_age_go_and_younger_ones_stay(path: Path, connection: sqlite3.Connection) -> None:
    fill(connection, 40, ages_days=(31.0, 29.9, 0.0, 300.0))
    assert trim(connection, StorePolicy(path=path, keep_days=30.0), rows=40, now_wall=NOW) == 20
    ages = {(NOW - row[0]) / DAY_S for row in connection.execute("SELECT accepted_wall FROM requests")}
    assert max(ages) < 30


def test_a_tick_removes_a_bounded_number_of_rows(path: Path, connection: sqlite3.Connection) -> None:
    fill(connection, 100, ages_days=(31.0,))
    policy = StorePolicy(path=path, keep_days=30.0, trim_records=30)
    assert trim_until_quiet(connection, policy) == [30, 30, 30, 10]


def test_the_oldest_rows_go_when_the_file_is_too_large(path: Path, connection: sqlite3.Connection) -> None:
    fill(connection, 600)
    policy = StorePolicy(path=path, keep_bytes=used_bytes(connection) // 2, trim_records=100)
    portions = trim_until_quiet(connection, policy)
    assert max(portions) <= 100
    assert used_bytes(connection) <= policy.keep_bytes
    assert 200 < count(connection) < 350, "not much more than needed went"
    assert connection.execute("SELECT min(id), max(id) FROM requests").fetchone() == (601 - count(connection), 600)


def test_age_and_size_share_the_bound_of_one_tick(path: Path, connection: sqlite3.Connection) -> None:
    fill(connection, 200, ages_days=(31.0, 1.0))
    policy = StorePolicy(path=path, keep_bytes=1, trim_records=60)
    assert trim_until_quiet(connection, policy) == [60, 60, 60, 20]


def test_a_limit_that_nothing_fits_in_leaves_an_empty_file_and_no_failure(
    path: Path, connection: sqlite3.Connection
) -> None:
    fill(connection, 3)
    assert trim_until_quiet(connection, StorePolicy(path=path, keep_bytes=1)) == [3]
    assert trim(connection, StorePolicy(path=path, keep_bytes=1), rows=0, now_wall=NOW) == 0


def test_zero_means_no_bound(path: Path, connection: sqlite3.Connection) -> None:
    fill(connection, 10, ages_days=(9999.0,))
    policy = StorePolicy(path=path, keep_days=0, keep_bytes=0)
    assert trim_until_quiet(connection, policy) == []


def test_room_goes_back_to_the_disk_in_portions_and_some_stays(path: Path, connection: sqlite3.Connection) -> None:
    fill(connection, 1200)
    policy = StorePolicy(path=path, keep_bytes=1, trim_records=1200, vacuum_pages=20, spare_pages=30)
    pages = [connection.execute("PRAGMA page_count").fetchone()[0]]
    for _ in range(30):
        trim(connection, policy, rows=count(connection), now_wall=NOW)
        pages.append(connection.execute("PRAGMA page_count").fetchone()[0])
    steps = {before - after for before, after in pairwise(pages)}
    assert max(steps) <= 21, "pointer pages may go along"
    assert connection.execute("PRAGMA freelist_count").fetchone()[0] == 30
    assert pages[-1] < pages[0] / 3


def test_a_failure_leaves_no_transaction_open(path: Path, connection: sqlite3.Connection) -> None:
    fill(connection, 3, ages_days=(99.0,))
    connection.execute("CREATE TRIGGER refuse BEFORE DELETE ON requests BEGIN SELECT raise(ABORT, 'no'); END")
    with pytest.raises(sqlite3.IntegrityError, match="no"):
        trim(connection, StorePolicy(path=path), rows=3, now_wall=NOW)
    assert not connection.in_transaction
    assert count(connection) == 3
