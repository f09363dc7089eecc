"""Sums over rounds: medians, ratios inside a round, percentiles."""

from benchmarks.figures import Spread, difference, percentile, ratios, spread


def test_spread_is_median_smallest_and_largest() -> None:
    assert spread([3.0, 1.0, 2.0, 10.0]) == Spread(median=2.5, low=1.0, high=10.0, rounds=4)


def test_spread_of_nothing_is_unknown() -> None:
    assert spread([]) is None


def test_ratios_are_taken_inside_each_round_before_they_are_summed_up() -> None:
    # The machine was twice as slow in the second round: the ratio must not see that.
    assert ratios([15.0, 33.0], [10.0, 20.0]) == Spread(median=1.575, low=1.5, high=1.65, rounds=2)


def test_a_round_without_its_reference_gives_no_ratio() -> None:
    assert ratios([15.0, None, 12.0], [10.0, 10.0, None]) == Spread(median=1.5, low=1.5, high=1.5, rounds=1)


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([], 0.5) is None


def test_difference_needs_both_sides() -> None:
    assert difference(5.0, 3.0) == 2.0
    assert difference(None, 3.0) is None
    assert difference(5.0, None) is None
