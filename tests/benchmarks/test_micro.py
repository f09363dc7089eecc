"""Every part of the hot path that is timed by itself does its work, and has a figure for each repeat."""

from benchmarks.micro import measured, parts


def test_every_part_has_a_figure_for_each_repeat_and_every_station_is_there() -> None:
    found = measured(60, 2)
    assert len(found) == len(parts())
    assert {len(costs) for costs in found.values()} == {2}
    assert {name.partition(":")[0] for name in found} == {"admission", "framing", "relay", "tap", "settle"}
