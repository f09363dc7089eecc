import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.errors import StoreUnusable
from gateway.ports import RequestFilter
from gateway.store.events import StoreEvent
from gateway.store.history import SqliteHistory
from gateway.store.policy import StorePolicy
from tests.fakes.settled import record_of
from tests.unit.store.disk import Disk

pytestmark = pytest.mark.asyncio


@pytest.fixture
def policy(tmp_path: Path) -> StorePolicy:
    return StorePolicy(path=tmp_path / "h.db", keep_days=0, pending_records=200, pending_questions=3, answer_s=20.0)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest_asyncio.fixture
async def history(policy: StorePolicy, disk: Disk) -> AsyncIterator[SqliteHistory]:
    opened = SqliteHistory(policy, on_event=lambda event: None, connect_to=disk.connect)
    await opened.start()
    yield opened
    disk.free.set()
    await opened.close()


async def test_what_was_added_is_found_at_once_and_counted(history: SqliteHistory) -> None:
    history.add([record_of(f"r{at}") for at in range(3)])
    assert [row.record.request_id for row in await history.find(RequestFilter())] == ["r2", "r1", "r0"]
    assert history.rows() == 3
    assert history.problem() == ""


async def test_one_request_is_got_by_its_id(history: SqliteHistory) -> None:
    history.add([record_of("r1"), record_of("r2", total_s=9.0)])
    row = await history.get("r2")
    assert row is not None
    assert row.record == record_of("r2", total_s=9.0)
    assert await history.get("missing") is None


async def test_what_waits_is_written_at_the_end_and_there_after_a_restart(
    history: SqliteHistory, policy: StorePolicy
) -> None:
    history.add([record_of(f"r{at}") for at in range(150)])
    await history.close()
    again = SqliteHistory(policy, on_event=lambda event: None)
    await again.start()
    assert again.rows() == 150
    await again.close()


async def test_after_the_end_records_are_counted_as_lost_and_questions_refused(history: SqliteHistory) -> None:
    await history.close()
    history.add([record_of()])
    assert history.dropped() == 1
    with pytest.raises(StoreUnusable, match="closed"):
        await history.find(RequestFilter())


async def test_a_store_that_cannot_be_opened_says_so_at_the_start(tmp_path: Path) -> None:
    history = SqliteHistory(StorePolicy(path=tmp_path), on_event=lambda event: None)
    with pytest.raises(StoreUnusable, match="Is a directory"):
        await history.start()
    await history.close()


async def test_a_disk_that_hangs_at_the_start_is_told(policy: StorePolicy, disk: Disk) -> None:
    disk.free.clear()
    history = SqliteHistory(policy, on_event=lambda event: None, connect_to=disk.connect)
    with pytest.raises(StoreUnusable, match=r"h\.db: the disk has not answered for 0\.05 s"):
        await history.start(timeout_s=0.05)
    disk.free.set()
    await history.close()


async def test_a_store_that_was_never_started_can_be_closed(policy: StorePolicy) -> None:
    history = SqliteHistory(policy, on_event=lambda event: None)
    await history.close()
    assert not policy.path.exists()


async def test_a_hung_disk_stops_nobody_and_is_told(history: SqliteHistory, policy: StorePolicy, disk: Disk) -> None:
    disk.free.clear()
    history.add([record_of()] * 150)
    await asyncio.to_thread(disk.hanging.wait, 10)
    history.add([record_of()] * 150)
    assert history.dropped() == 100
    history._clock = lambda: history._writer.busy_since + policy.hung_s + 5.0  # type: ignore[operator]
    assert history.problem() == f"{policy.path}: the disk has not answered for 15 s (100 rows dropped since the start)"
    await history.close(timeout_s=0.01)
    disk.free.set()


async def test_a_question_without_an_answer_in_time_is_refused(tmp_path: Path, disk: Disk) -> None:
    policy = StorePolicy(path=tmp_path / "h.db", answer_s=0.01)
    history = SqliteHistory(policy, on_event=lambda event: None, connect_to=disk.connect)
    await history.start()
    disk.free.clear()
    history.add([record_of()])
    with pytest.raises(StoreUnusable, match=r"no answer within 0\.01 s"):
        await history.find(RequestFilter())
    disk.free.set()
    await history.close()


async def test_more_questions_than_may_wait_are_refused(history: SqliteHistory, disk: Disk) -> None:
    disk.free.clear()
    history.add([record_of()])
    first = asyncio.gather(history.get("a"))
    await asyncio.to_thread(disk.hanging.wait, 10)
    others = asyncio.gather(*(history.get("a") for _ in range(5)), return_exceptions=True)
    await asyncio.sleep(0)
    disk.free.set()
    answers = await others
    assert await first == [None]
    assert {type(answer) for answer in answers} == {type(None), StoreUnusable}
    assert "too many questions" in str(next(answer for answer in answers if answer is not None))


async def test_an_asker_that_leaves_disturbs_nobody(history: SqliteHistory) -> None:
    history.add([record_of()])
    asking = asyncio.gather(history.find(RequestFilter()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(await history.find(RequestFilter())) == 1


async def test_events_come_on_the_loop(tmp_path: Path) -> None:
    seen: asyncio.Queue[tuple[StoreEvent, asyncio.AbstractEventLoop]] = asyncio.Queue()
    path = tmp_path / "h.db"
    path.write_bytes(b"\x00garbage" * 1000)
    history = SqliteHistory(
        StorePolicy(path=path), on_event=lambda event: seen.put_nowait((event, asyncio.get_running_loop()))
    )
    await history.start()
    async with asyncio.timeout(10):
        _, loop = await seen.get()
    assert loop is asyncio.get_running_loop()
    await history.close()


async def test_a_loop_that_has_ended_is_told_nothing(policy: StorePolicy) -> None:
    told: list[StoreEvent] = []
    history = SqliteHistory(policy, on_event=told.append)
    loop = asyncio.new_event_loop()
    loop.close()
    history._loop = loop
    history._tell(None)  # type: ignore[arg-type]
    assert told == []
