import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import pytest_asyncio

from gateway.errors import StoreUnusable
from gateway.ports import RequestFilter
from gateway.store import opening
from gateway.store.events import (
    FileGone,
    Migrated,
    MovedAside,
    Recovered,
    RowsDropped,
    RowUnreadable,
    StoreEvent,
    Troubled,
)
from gateway.store.history import SqliteHistory
from gateway.store.policy import StorePolicy
from gateway.store.schema import STEPS
from tests.fakes.settled import record_of
from tests.unit.store.disk import Disk

pytestmark = pytest.mark.asyncio

Told = TypeVar("Told")


class Store:
    """A history over a disk that fails on demand; remembers what it told."""

    def __init__(self, path: Path, **limits: object) -> None:
        self.path = path
        self.disk = Disk()
        self.wall = 1_700_000_000.0
        defaults = {"keep_days": 0, "flush_s": 0.0, "tick_s": 0.02, "retry_first_s": 0.01, "retry_max_s": 0.04}
        self.policy = StorePolicy(path=path, **(defaults | limits))  # type: ignore[arg-type]
        self.told: list[StoreEvent] = []
        self._news = asyncio.Event()
        self.history = SqliteHistory(
            self.policy, on_event=self._hear, now_wall=lambda: self.wall, connect_to=self.disk.connect
        )

    def _hear(self, event: StoreEvent) -> None:
        self.told.append(event)
        self._news.set()

    async def event(self, kind: type[Told], matching: Callable[[Told], bool] = lambda _event: True) -> Told:
        async with asyncio.timeout(20):
            while True:
                for event in self.told:
                    if isinstance(event, kind) and matching(event):
                        return event
                self._news.clear()
                await self._news.wait()

    async def ids(self) -> list[str]:
        return [row.record.request_id for row in await self.history.find(RequestFilter(limit=1000))]


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = Store(tmp_path / "h.db", pending_records=100)
    await made.history.start()
    yield made
    made.disk.free.set()
    await made.history.close()


def rows_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    count = int(connection.execute("SELECT count(*) FROM requests").fetchone()[0])
    connection.close()
    return count


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def names(folder: Path, pattern: str) -> list[str]:
    return [path.name for path in folder.glob(pattern)]


async def fill_and_close(path: Path, count: int) -> None:
    store = Store(path)
    await store.history.start()
    store.history.add([record_of(f"r{at}") for at in range(count)])
    await store.history.close()
    assert rows_of(path) == count


async def test_a_full_disk_is_told_and_nothing_is_lost_when_room_comes_back(store: Store) -> None:
    store.history.add([record_of("before")])
    assert await store.ids() == ["before"]
    store.disk.full = True
    store.history.add([record_of(f"during-{at}") for at in range(50)])
    trouble = await store.event(Troubled)
    assert trouble.problem.startswith(f"{store.path}: database or disk is full; free space")
    assert store.history.problem().startswith(f"{store.path}: database or disk is full")
    with pytest.raises(StoreUnusable, match="full"):
        await store.ids()

    store.disk.full = False
    recovered = await store.event(Recovered)
    assert recovered.dropped == 0
    assert len(await store.ids()) == 51
    assert store.history.problem() == ""
    assert store.history.dropped() == 0


async def test_a_long_trouble_drops_what_finds_no_room_and_counts_it(store: Store) -> None:
    store.disk.full = True
    store.history.add([record_of("first") for _ in range(60)])
    await store.event(Troubled)
    store.history.add([record_of("late") for _ in range(60)])
    assert store.history.dropped() == 20
    assert store.history.problem().endswith("(20 rows dropped since the start)")
    store.disk.full = False
    assert (await store.event(Recovered)).dropped == 20
    assert (await store.event(RowsDropped)).count == 20
    assert len(await store.ids()) == 100


async def test_a_trouble_is_told_once_however_often_it_is_tried_again(store: Store) -> None:
    store.disk.error = sqlite3.OperationalError("disk I/O error")
    store.history.add([record_of("r")])
    await store.event(Troubled)
    for _ in range(3):
        with pytest.raises(StoreUnusable):
            await store.ids()
    store.disk.error = None
    await store.event(Recovered)
    assert [type(event) for event in store.told] == [Troubled, Recovered]


async def test_a_read_only_file_is_told_at_the_start(tmp_path: Path) -> None:
    store = Store(tmp_path / "h.db")
    store.disk.error = sqlite3.OperationalError("attempt to write a readonly database")
    store.disk.error.sqlite_errorcode = sqlite3.SQLITE_READONLY  # type: ignore[misc]
    with pytest.raises(StoreUnusable, match=r"h\.db: attempt to write a readonly database; make the file"):
        await store.history.start()
    await store.history.close()


async def test_a_defect_inside_is_told_and_tried_again(store: Store) -> None:
    store.disk.error = RuntimeError("a defect")
    store.history.add([record_of("r")])
    assert "a defect" in (await store.event(Troubled)).problem
    store.disk.error = None
    await store.event(Recovered)
    assert await store.ids() == ["r"]


async def test_a_damaged_file_is_moved_aside_at_the_start_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await fill_and_close(path, 500)
    os.truncate(path, path.stat().st_size // 2)
    content = path.read_bytes()
    store = Store(path)
    await store.history.start()
    moved = await store.event(MovedAside)
    assert moved.path == str(path)
    assert moved.moved_to == f"{path}.damaged-20231114T221320Z"
    assert read(moved.moved_to) == content
    store.history.add([record_of("new")])
    assert await store.ids() == ["new"]
    assert store.history.rows() == 1
    await store.history.close()


async def test_damage_that_is_found_later_is_handled_then(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await fill_and_close(path, 500)
    store = Store(path, check_bytes=0, tick_s=1000.0)
    await store.history.start()
    content = bytearray(path.read_bytes())
    content[12 * 4096 :] = b"\xa5" * (len(content) - 12 * 4096)  # leaves, but neither the header nor the schema
    path.write_bytes(content)
    with pytest.raises(StoreUnusable, match="malformed"):
        await store.ids()
    moved = await store.event(MovedAside)
    assert read(moved.moved_to)[4096 * 12 :] == content[4096 * 12 :]
    store.history.add([record_of("new")])
    assert await store.ids() == ["new"]
    assert store.history.problem() == ""
    await store.history.close()


async def test_a_file_that_is_damaged_again_at_once_is_not_moved_again_and_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "h.db", tick_s=1000.0)
    await store.history.start()
    store.disk.error = sqlite3.DatabaseError("database disk image is malformed")
    store.disk.error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT  # type: ignore[misc]
    store.history.add([record_of("r")])
    assert "damaged again at once" in (await store.event(Troubled)).problem
    assert [type(event) for event in store.told] == [MovedAside, Troubled]
    assert len(names(tmp_path, "*.damaged-*")) == 1
    store.disk.error = None
    await store.event(Recovered)
    assert await store.ids() == ["r"]
    await store.history.close()


async def test_a_file_that_somebody_removed_is_made_anew(store: Store) -> None:
    store.history.add([record_of("old")])
    assert await store.ids() == ["old"]
    store.path.unlink()
    assert await store.event(FileGone) == FileGone(path=str(store.path))
    store.history.add([record_of("new")])
    assert await store.ids() == ["new"]
    assert rows_of(store.path) == 1


async def test_a_migration_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill_and_close(tmp_path / "h.db", 3)
    monkeypatch.setattr(opening, "STEPS", (*STEPS, ("CREATE TABLE later (x)",)))
    store = Store(tmp_path / "h.db")
    await store.history.start()
    assert await store.event(Migrated) == Migrated(path=str(store.path), before=len(STEPS), after=len(STEPS) + 1)
    assert len(await store.ids()) == 3
    await store.history.close()


async def test_records_that_no_row_can_hold_are_counted_and_told(store: Store) -> None:
    store.history.add([record_of("good"), msgspec.structs.replace(record_of("bad"), model="\udcff")])
    assert await store.ids() == ["good"]
    assert store.history.dropped() == 1
    assert await store.event(RowsDropped) == RowsDropped(path=str(store.path), count=1, refused=True)


async def test_an_unreadable_row_is_told(store: Store) -> None:
    store.history.add([record_of("r")])
    await store.ids()
    connection = sqlite3.connect(store.path, isolation_level=None)
    connection.execute("UPDATE requests SET record = '{}'")
    connection.close()
    assert await store.ids() == []
    assert (await store.event(RowUnreadable)).id == 1


async def test_a_question_that_takes_too_long_is_no_trouble(tmp_path: Path) -> None:
    store = Store(tmp_path / "h.db", query_s=-1.0)
    await store.history.start()
    store.history.add([record_of(f"r{at}") for at in range(4000)])
    with pytest.raises(StoreUnusable, match="interrupted"):
        await store.history.find(RequestFilter(model="none", slowest=True))
    assert store.history.problem() == ""
    assert await store.history.get("r1") is not None
    assert store.told == []
    await store.history.close()


async def test_old_rows_go_while_new_ones_come(tmp_path: Path) -> None:
    store = Store(tmp_path / "h.db", keep_bytes=400_000, trim_records=200, batch_records=100, tick_s=1000.0)
    await store.history.start()
    for at in range(30):
        store.history.add([record_of(f"r{at}-{number}") for number in range(100)])
        await store.history.get("none")
    assert 100 < store.history.rows() < 600
    assert store.history.rows() == len(await store.ids())
    assert (await store.ids())[0] == "r29-99"
    await store.history.close()
    assert store.path.stat().st_size < 3 * 400_000


async def test_rows_grow_too_old_without_any_traffic(store: Store) -> None:
    kept = Store(store.path.with_name("aged.db"), keep_days=1.0)
    await kept.history.start()
    kept.history.add([record_of("r")])
    assert await kept.ids() == ["r"]
    kept.wall += 2 * 86_400.0
    async with asyncio.timeout(20):
        while await kept.ids():
            pass
    assert kept.history.rows() == 0
    await kept.history.close()


async def test_what_cannot_be_written_at_the_end_is_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "h.db")
    await store.history.start()
    store.disk.full = True
    store.history.add([record_of(f"r{at}") for at in range(50)])
    await store.event(Troubled)
    await store.history.close()
    assert store.history.dropped() == 50
    assert "50 rows dropped" in store.history.problem()
    assert rows_of(store.path) == 0


async def test_a_second_gateway_on_one_file_is_refused_until_the_first_has_closed_it(store: Store) -> None:
    with pytest.raises(StoreUnusable, match="another gateway"):
        await Store(store.path).history.start()
    store.history.add([record_of("one")])
    await store.history.close()
    second = Store(store.path)
    await second.history.start()
    assert await second.ids() == ["one"]
    await second.history.close()
