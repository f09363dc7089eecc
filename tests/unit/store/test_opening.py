import os
import sqlite3
import stat
from pathlib import Path

import pytest

from gateway.errors import StoreUnusable
from gateway.store.diagnose import Damaged
from gateway.store.opening import limited, move_aside, open_history
from gateway.store.policy import StorePolicy
from gateway.store.schema import APPLICATION_ID, STEPS


def opened(path: Path) -> sqlite3.Connection:
    return open_history(StorePolicy(path=path))[0]


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def make_database(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_new_file_is_made_with_its_folders_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "var" / "deep" / "h.db"
    connection, before, _ = open_history(StorePolicy(path=path))
    assert before == 0
    assert pragma(connection, "user_version") == len(STEPS)
    assert pragma(connection, "application_id") == APPLICATION_ID
    assert pragma(connection, "journal_mode") == "wal"
    assert pragma(connection, "auto_vacuum") == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    connection.close()


def test_an_existing_file_is_opened_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    opened(path).close()
    connection, before, _ = open_history(StorePolicy(path=path))
    assert before == len(STEPS)
    connection.close()


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    path.touch()
    connection, before, _ = open_history(StorePolicy(path=path))
    assert (before, pragma(connection, "user_version")) == (0, len(STEPS))
    connection.close()


def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    opened(path).close()
    make_database(path, f"PRAGMA user_version = {len(STEPS) + 6}")
    content = path.read_bytes()
    with pytest.raises(StoreUnusable) as caught:
        opened(path)
    assert str(path) in caught.value.message
    assert f"schema version {len(STEPS) + 6}, this one knows {len(STEPS)}" in caught.value.message
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE theirs (x)", "PRAGMA application_id = 77", "PRAGMA user_version = 1"]
)
def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "other.db"
    make_database(path, statement)
    content = path.read_bytes()
    with pytest.raises(StoreUnusable, match="another program"):
        opened(path)
    assert path.read_bytes() == content


def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    path.write_bytes(b"not a database\x00" * 100)
    with pytest.raises(Damaged):
        opened(path)


@pytest.mark.parametrize("text", ["pools:\n  - name: mine\n", "日本語\n" * 2000, "x"])
def test_a_text_file_is_somebody_s_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "precious.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StoreUnusable, match="a text file"):
        opened(path)
    assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def filled(path: Path) -> None:
    connection = opened(path)
    connection.execute("CREATE TABLE filler (x)")
    connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 900,) for _ in range(200)])
    connection.close()


def test_a_file_with_overwritten_pages_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    filled(path)
    content = bytearray(path.read_bytes())
    content[8192 : 8192 + 4096 * 10] = b"\xa5" * 4096 * 10
    path.write_bytes(content)
    with pytest.raises(Damaged):
        opened(path)


def test_a_large_file_is_opened_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    filled(path)
    content = bytearray(path.read_bytes())
    content[-4096:] = b"\xa5" * 4096
    path.write_bytes(content)
    open_history(StorePolicy(path=path, check_bytes=4096)).connection.close()
    with pytest.raises(Damaged):
        opened(path)


@pytest.mark.parametrize("check_bytes", [0, 2**30])
def test_a_torn_file_is_found_whatever_its_size(tmp_path: Path, check_bytes: int) -> None:
    path = tmp_path / "h.db"
    filled(path)
    os.truncate(path, path.stat().st_size - StorePolicy(path=path).page_bytes - 1000)
    with pytest.raises(Damaged):
        open_history(StorePolicy(path=path, check_bytes=check_bytes))


def test_a_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="Is a directory"):
        opened(tmp_path)


def test_a_pipe_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    os.mkfifo(path)
    with pytest.raises(StoreUnusable, match="not a regular file"):
        opened(path)


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "var").touch()
    with pytest.raises(StoreUnusable, match=r"var.*store\.path"):
        opened(tmp_path / "var" / "h.db")


@pytest.mark.parametrize("statement,reason", [("PRAGMA query_only = ON", "readonly"), ("", "full")])
def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path, statement: str, reason: str) -> None:
    path = tmp_path / "h.db"

    def connect(to: Path, busy_s: float) -> sqlite3.Connection:
        connection = sqlite3.connect(to, timeout=busy_s, isolation_level=None)
        connection.execute(statement or "PRAGMA max_page_count = 3")
        return connection

    with pytest.raises(StoreUnusable, match=f"h\\.db: .*{reason}.*; "):
        open_history(StorePolicy(path=path), connect)


def test_a_file_that_another_process_holds_is_told(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    opened(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnusable, match="another process holds it"):
        open_history(StorePolicy(path=path, busy_s=0.01))
    other.close()


def test_moving_aside_keeps_the_file_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    for suffix in ("", "-wal"):
        Path(f"{path}{suffix}").write_text(suffix)
    aside = move_aside(path, 1_700_000_000.0)
    assert aside.name == "h.db.damaged-20231114T221320Z"
    assert aside.read_text() == ""
    assert Path(f"{aside}-wal").read_text() == "-wal"
    assert not path.exists()


def test_moving_aside_never_overwrites_what_was_moved_before(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    names = set()
    for content in ("1", "2", "3"):
        path.write_text(content)
        names.add(move_aside(path, 1_700_000_000.0))
    assert {name.read_text() for name in names} == {"1", "2", "3"}


def test_a_statement_over_its_time_is_interrupted() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(sqlite3.OperationalError, match="interrupted"), limited(connection, 0.01):
        connection.execute(endless).fetchall()
    assert connection.execute("SELECT 1").fetchone() == (1,)
    connection.close()
