"""Bounds of the figures' table: what is met, what is not, and how it is shown."""

from math import inf

import pytest

from benchmarks.published.streams import Crowd, Stream, StreamFailed, forced
from benchmarks.published.table import about, at_least, at_most, markdown


@pytest.mark.parametrize("measured,met", [(98.0, True), (102.0, True), (97.9, False), (102.1, False)])
def test_a_figure_may_differ_by_its_share_to_either_side(measured: float, met: bool) -> None:
    assert about("it", "rate", wanted=100.0, measured=measured, within=0.02).is_met is met


@pytest.mark.parametrize("measured,least,most", [(99.0, False, True), (100.0, True, True), (101.0, True, False)])
def test_a_bound_to_one_side_holds_there_alone(measured: float, least: bool, most: bool) -> None:
    assert at_least("it", "rate", wanted=100.0, measured=measured).is_met is least
    assert at_most("it", "rate", wanted=100.0, measured=measured).is_met is most


def test_the_table_names_what_was_missed() -> None:
    text = markdown([about("it", "rate", wanted=100.0, measured=93.0, within=0.05)])
    assert "| it | rate | 100.0 | 93.0 | -7.0% | ±5% | NO |" in text
    assert at_least("it", "rate", wanted=1.0, measured=inf).allowed == "at least"


def test_the_first_answers_of_a_crowd_end_evenly() -> None:
    crowd = Crowd([Stream() for _ in range(4)], model="m", tokens=100)
    assert list(crowd.lengths()) == [25, 50, 75, 100]


@pytest.mark.asyncio
async def test_an_answer_without_its_end_marker_is_a_failure() -> None:
    stream = Stream()
    with pytest.raises(StreamFailed, match="not connected"):
        await stream.ask(forced("m", 4))
