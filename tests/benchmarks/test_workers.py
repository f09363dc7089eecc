"""The set-up of the workers part: who gets which core, and what is said where there are too few."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.load import Tally
from benchmarks.load_process import Board
from benchmarks.plan import WorkersLoad
from benchmarks.workers import Layout, layout, throughput


def test_everybody_has_a_core_and_sixteen_are_enough_for_eight_workers() -> None:
    placed = layout(8, range(16))
    assert isinstance(placed, Layout)
    every = (*placed.workers, *placed.engines, *placed.clients, placed.rest)
    assert sorted(every) == list(range(16))
    assert (len(placed.workers), len(placed.engines), len(placed.clients)) == (8, 4, 3)


@pytest.mark.parametrize("workers, needed", [(1, 4), (2, 5), (4, 9), (8, 16)])
def test_a_machine_with_one_core_too_few_is_told_what_it_needs(workers: int, needed: int) -> None:
    assert isinstance(layout(workers, range(needed)), Layout)
    told = layout(workers, range(needed - 1))
    assert isinstance(told, str)
    assert told.startswith(f"needs {needed} cores")
    assert told.endswith(f"there are {needed - 1}")


def test_unpinned_shares_what_there_is() -> None:
    placed = layout(2, [3, 7], unpinned=True)
    assert placed == Layout(workers=(3, 7), engines=(3,), clients=(7,), rest=3)


def test_nothing_is_measured_and_every_number_is_named_where_cores_are_missing() -> None:
    found = asyncio.run(throughput((1, 2, 8), WorkersLoad(), cores=[0, 1]))
    assert found.rounds == []
    assert list(found.skipped) == ["P9 with 1 workers", "P9 with 2 workers", "P9 with 8 workers"]


def test_the_board_sums_up_what_every_process_tells(tmp_path: Path) -> None:
    path = tmp_path / "board"
    reader = Board(path, 2)
    for row, events in enumerate((5, 7)):
        Board(path, 2).write(row, Tally(events=events, answers=1, failures=["x"] * row), connections=3)
    assert reader.total() == (12, 2, 1, 6)
