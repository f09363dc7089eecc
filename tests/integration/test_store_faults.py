"""The history store against what really happens: killed while it writes, no permission, a disk that ends.

Each store runs in a process of its own, since a kill, a change of user and a limit on files concern a whole process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.ports import RequestFilter
from gateway.store.database import Database
from gateway.store.policy import StorePolicy

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534

PRELUDE = """
import asyncio, os, resource, sys
from pathlib import Path
from gateway.errors import StoreUnusable
from gateway.ports import RequestFilter
from gateway.store.history import SqliteHistory
from gateway.store.policy import StorePolicy
from tests.fakes.settled import record_of

path = Path(sys.argv[1])
"""

WRITE_FOR_EVER = """
async def main():
    history = SqliteHistory(StorePolicy(path=path, keep_days=0, flush_s=0.0, batch_records=50), on_event=lambda event: print(event))
    await history.start()
    number = history.rows()
    while True:
        history.add([record_of(f"r{number + at}") for at in range(50)])
        number += 50
        await history.get("none")
        print(number, flush=True)
asyncio.run(main())
"""

START = """
async def main():
    if os.geteuid() == 0:
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
    history = SqliteHistory(StorePolicy(path=path), on_event=lambda event: None)
    try:
        await history.start()
    except StoreUnusable as error:
        print(error.message)
    await history.close()
asyncio.run(main())
"""

RUN_OUT_OF_ROOM = """
async def main():
    seen, news = [], asyncio.Event()
    history = SqliteHistory(
        StorePolicy(
            path=path, keep_days=0, flush_s=0.0, tick_s=0.05, retry_first_s=0.05, retry_max_s=0.1, pending_records=300
        ),
        on_event=lambda event: (seen.append(type(event).__name__), news.set()),
    )
    async def told(name):
        async with asyncio.timeout(20):
            while name not in seen:
                news.clear()
                await news.wait()
    await history.start()
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
    for number in range(200):
        history.add([record_of(f"r{number}")])
    await told("Troubled")
    print(history.problem())
    history.add([record_of(f"late{number}") for number in range(300)])
    print(history.dropped())
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await told("Recovered")
    rows = await history.find(RequestFilter(limit=1000))
    print(len(rows), len({row.record.request_id for row in rows}), repr(history.problem()))
    await history.close()
asyncio.run(main())
"""


def run(script: str, path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can look into."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_kill_while_it_writes_loses_at_most_what_was_under_way(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    confirmed = 0
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + WRITE_FOR_EVER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _line in range(5):
            line = writer.stdout.readline()
            assert line.strip().isdigit(), f"an event where none belongs: {line}"
            confirmed = int(line)
        writer.kill()
        writer.communicate()
        database = Database(StorePolicy(path=path), lambda *_: pytest.fail("an unreadable row"))
        count = database.rows
        newest = database.find(RequestFilter(limit=1000))
        database.close()
        assert confirmed <= count
        assert count % 50 == 0, "a batch is there whole or not at all"
        assert [row.record.request_id for row in newest] == [f"r{at}" for at in range(count - 1, -1, -1)][:1000]
    assert sorted(os.listdir(tmp_path)) == ["h.db", "h.db.lock"], "nothing was moved aside"  # noqa: PTH208 - names are compared


def test_a_file_that_may_not_be_written_is_told_with_its_path(shared_folder: Path) -> None:
    path = shared_folder / "h.db"
    path.touch(mode=0o444)
    (told,) = run(START, path)
    assert told.startswith(f"{path}: Permission denied; make the file and its folder writable")


def test_a_folder_that_may_not_be_written_is_told_with_its_path(shared_folder: Path) -> None:
    if os.geteuid() != 0:
        shared_folder.chmod(0o555)
    (told,) = run(START, shared_folder / "deeper" / "h.db")
    assert told.startswith(f"{shared_folder / 'deeper'}: Permission denied; make the file and its folder writable")


def test_a_disk_that_ends_is_told_and_survived_without_loss_of_what_had_room_to_wait(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    problem, dropped, rest = run(RUN_OUT_OF_ROOM, path)
    assert problem.startswith(f"{path}: ")
    rows, different, problem_after = rest.split(" ", 2)
    assert int(rows) == int(different) == 500 - int(dropped)
    assert 0 < int(dropped) < 300
    assert problem_after == "''"
