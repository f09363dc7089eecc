"""The keepsake's thread: nobody waits for the disk, the newest wins, and trouble is told once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.control.keeper import Keeper
from gateway.control.keepsake import Keepsake
from gateway.fleet import Remembered
from tests.fakes.fleets import cards

pytestmark = pytest.mark.asyncio

LEFT = (Remembered(name="a", url="http://h:1", cards=cards("m")),)


class HangingDisk(Keepsake):
    """A keepsake whose every write waits until the test lets it go on; ``wrote`` has what came through."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self.wrote: list[object] = []

    def keep_fleet(self, generation: int, backends: tuple[Remembered, ...]) -> None:
        self._wait()
        self.wrote.append(generation)
        super().keep_fleet(generation, backends)

    def keep_config(self, text: str) -> None:
        self._wait()
        self.wrote.append(text)
        if text == "defect":
            raise KeyError("secret")
        super().keep_config(text)

    def _wait(self) -> None:
        self.begun.release()
        assert self.let_go.acquire(timeout=20)


async def test_what_is_kept_is_on_the_disk_when_it_is_said_to_be(tmp_path: Path) -> None:
    problems: list[str] = []
    keeper = Keeper(Keepsake(tmp_path), on_problem=problems.append)
    keeper.keep_fleet(7, LEFT)
    keeper.keep_config("pools: []\n")
    assert await keeper.written(timeout_s=20)
    assert Keepsake(tmp_path).fleet() == (7, LEFT)
    assert (tmp_path / "applied.yaml").read_text() == "pools: []\n"
    assert problems == []
    await keeper.close()


async def test_a_disk_that_hangs_holds_nobody_up_and_gets_the_newest_of_each_when_it_is_back(tmp_path: Path) -> None:
    disk = HangingDisk(tmp_path)
    keeper = Keeper(disk, on_problem=pytest.fail)
    keeper.keep_fleet(1, LEFT)
    assert await asyncio.to_thread(disk.begun.acquire, timeout=20)
    for generation in (2, 3, 4):
        keeper.keep_fleet(generation, LEFT)
        keeper.keep_config(f"text {generation}")
    assert not await keeper.written(timeout_s=0.01)
    disk.let_go.release(3)
    assert await keeper.written(timeout_s=20)
    assert disk.wrote == [1, 4, "text 4"]
    assert Keepsake(tmp_path).fleet() == (4, LEFT)
    await keeper.close()


async def test_closing_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    disk = HangingDisk(tmp_path)
    keeper = Keeper(disk, on_problem=pytest.fail)
    keeper.keep_fleet(1, LEFT)
    await keeper.close(timeout_s=0.01)
    assert disk.wrote == []
    disk.let_go.release()
    assert await keeper.written(timeout_s=20)


async def test_trouble_is_told_when_it_begins_and_when_it_is_over(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    problems: list[str] = []
    keeper = Keeper(Keepsake(folder), on_problem=problems.append)
    for generation in (1, 2):
        keeper.keep_fleet(generation, LEFT)
        assert await keeper.written(timeout_s=20)
    folder.mkdir()
    keeper.keep_fleet(3, LEFT)
    assert await keeper.written(timeout_s=20)
    assert problems == [f"{folder / 'fleet.json'}: no such file or directory", ""]
    await keeper.close()


async def test_a_defect_in_one_write_ends_no_later_one_and_is_told_without_its_words(tmp_path: Path) -> None:
    disk = HangingDisk(tmp_path)
    disk.let_go.release(2)
    problems: list[str] = []
    keeper = Keeper(disk, on_problem=problems.append)
    keeper.keep_config("defect")
    assert await keeper.written(timeout_s=20)
    keeper.keep_config("good")
    assert await keeper.written(timeout_s=20)
    assert problems == ["a defect: KeyError", ""]
    await keeper.close()
