import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.errors import StoreUnusable
from gateway.ports import RequestFilter
from gateway.store.database import Database
from gateway.store.opening import connect
from gateway.store.policy import StorePolicy
from tests.fakes.settled import record_of

GOOD = record_of("good")
BAD = [
    msgspec.structs.replace(GOOD, request_id="huge", status=2**70),
    msgspec.structs.replace(GOOD, request_id="surrogate", model="\udcff"),
    msgspec.structs.replace(GOOD, request_id="nan", total_s=float("nan")),
]


@pytest.fixture
def unreadable() -> list[int]:
    return []


@pytest.fixture
def database(tmp_path: Path, unreadable: list[int]) -> Iterator[Database]:
    opened = Database(StorePolicy(path=tmp_path / "h.db"), lambda row_id, _reason: unreadable.append(row_id))
    yield opened
    opened.close()


def outside(tmp_path: Path, statement: str) -> None:
    connection = sqlite3.connect(tmp_path / "h.db", isolation_level=None)
    connection.execute(statement)
    connection.close()


def test_what_was_written_is_found_and_counted(database: Database) -> None:
    assert database.write([record_of("r1"), record_of("r2", model="other")]) == 0
    assert database.rows == 2
    assert [row.record.request_id for row in database.find(RequestFilter())] == ["r2", "r1"]
    assert [row.id for row in database.find(RequestFilter(model="other"))] == [2]


def test_the_newest_of_two_with_one_id_is_got(database: Database) -> None:
    database.write([record_of("r", total_s=1.0), record_of("r", total_s=2.0), record_of("s")])
    row = database.get("r")
    assert row is not None
    assert (row.id, row.record.total_s) == (2, 2.0)
    assert database.get("missing") is None


@pytest.mark.parametrize("bad", BAD, ids=lambda record: record.request_id)
def test_a_record_that_no_row_can_hold_is_left_out_and_its_neighbours_are_kept(
    database: Database, bad: msgspec.Struct
) -> None:
    assert database.write([record_of("before"), bad, record_of("after")]) == 1  # type: ignore[list-item]
    assert [row.record.request_id for row in database.find(RequestFilter())] == ["after", "before"]
    assert database.rows == 2


def test_a_batch_that_fails_is_not_written_in_part(database: Database, tmp_path: Path) -> None:
    outside(
        tmp_path,
        "CREATE TRIGGER broken BEFORE INSERT ON requests WHEN NEW.request_id = 'r2'"
        " BEGIN INSERT INTO missing VALUES (1); END",
    )
    with pytest.raises(sqlite3.OperationalError):
        database.write([record_of("r1"), record_of("r2")])
    # The first batch has a row at fault besides, so that its rows go one by one.
    with pytest.raises(sqlite3.OperationalError):
        database.write([record_of("r1"), BAD[0], record_of("r2")])
    outside(tmp_path, "DROP TRIGGER broken")
    assert database.find(RequestFilter()) == []
    assert database.rows == 0


def test_an_unreadable_row_is_left_out_and_told(database: Database, tmp_path: Path, unreadable: list[int]) -> None:
    database.write([record_of("r1"), record_of("r2"), record_of("r3")])
    outside(tmp_path, "UPDATE requests SET record = '{}' WHERE request_id = 'r2'")
    assert [row.record.request_id for row in database.find(RequestFilter())] == ["r3", "r1"]
    assert database.get("r2") is None
    assert unreadable == [2, 2]


def test_ids_are_not_given_out_again_when_rows_are_forgotten(tmp_path: Path) -> None:
    database = Database(StorePolicy(path=tmp_path / "h.db", keep_bytes=1), lambda *_: None)
    database.write([record_of("r1"), record_of("r2")])
    assert database.trim(1_700_000_000.0) == 2
    assert database.rows == 0
    database.write([record_of("r3")])
    assert [row.id for row in database.find(RequestFilter())] == [3]
    database.close()


def test_rows_are_counted_when_a_file_is_opened_again(tmp_path: Path) -> None:
    policy = StorePolicy(path=tmp_path / "h.db")
    first = Database(policy, lambda *_: None)
    first.write([record_of("r1")] * 5)
    first.close()
    second = Database(policy, lambda *_: None)
    assert (second.rows, second.version_before) == (5, second.version)
    second.close()


def test_a_file_that_was_removed_or_replaced_is_noticed(database: Database, tmp_path: Path) -> None:
    assert not database.replaced()
    (tmp_path / "h.db").rename(tmp_path / "elsewhere.db")
    assert database.replaced()
    (tmp_path / "h.db").touch()
    assert database.replaced()


def test_a_question_over_its_time_is_interrupted(tmp_path: Path) -> None:
    database = Database(StorePolicy(path=tmp_path / "h.db", query_s=-1.0), lambda *_: None)
    for _ in range(8):
        database.write([record_of(f"r{at}", model=f"m{at % 7}") for at in range(500)])
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        database.find(RequestFilter(model="none", slowest=True))
    database.close()


def test_closing_leaves_one_file(database: Database, tmp_path: Path) -> None:
    database.write([record_of("r1")])
    database.close()
    assert [path.name for path in tmp_path.iterdir()] == ["h.db"]


def test_a_file_that_cannot_be_read_after_all_is_closed_again(tmp_path: Path) -> None:
    made: list[sqlite3.Connection] = []

    class Failing(sqlite3.Connection):
        def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
            if "count(*) FROM requests" in statement:
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(statement, *values)  # type: ignore[arg-type]

    def connect_failing(path: Path, busy_s: float) -> sqlite3.Connection:
        made.append(sqlite3.connect(path, timeout=busy_s, isolation_level=None, factory=Failing))
        return made[-1]

    with pytest.raises(sqlite3.OperationalError):
        Database(StorePolicy(path=tmp_path / "h.db"), lambda *_: None, connect_to=connect_failing)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("SELECT 1")


def test_a_connection_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    def refuse(path: Path, busy_s: float) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    with pytest.raises(StoreUnusable, match="unable to open"):
        Database(StorePolicy(path=tmp_path / "h.db"), lambda *_: None, connect_to=refuse)
    Database(StorePolicy(path=tmp_path / "h.db"), lambda *_: None, connect_to=connect).close()
