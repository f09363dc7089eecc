"""The cost of ingest is measured on control as it is built: every part has its figure, and nothing is lost."""

import pytest

from benchmarks.micro_ingest import measure, settled_record
from gateway.telemetry.settled import settled_event


@pytest.mark.asyncio
async def test_every_part_and_the_whole_have_a_figure_for_each_repeat() -> None:
    figures = await measure(records=100, batch=25, rate=2000.0, repeats=2)
    assert {len(values) for values in figures.values()} == {2}
    assert {"metrics", "log and live feed", "whole, the loop's thread", "whole, every thread"} <= set(figures)
    assert min(figures["whole, every thread"]) > 0


def test_the_records_are_as_wide_as_real_ones_and_differ() -> None:
    first, second = settled_record(1), settled_record(2)
    assert first.request_id != second.request_id
    assert first.summary is not None
    assert first.summary.engine is not None
    assert settled_event(first) != settled_event(second)
