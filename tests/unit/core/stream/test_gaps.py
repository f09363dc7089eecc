"""Quantiles of chunk gaps: right within the documented error, in bounded memory."""

from __future__ import annotations

import pytest

from gateway.core.stream.gaps import GapHistogram


def histogram_of(*gaps_s: float) -> GapHistogram:
    histogram = GapHistogram()
    for gap_s in gaps_s:
        histogram.add(gap_s)
    return histogram


def test_no_gaps_have_no_quantile() -> None:
    assert GapHistogram().quantile(0.5) is None


@pytest.mark.parametrize("gap_s", [1e-6, 3.3e-5, 0.0049, 0.005, 0.0125, 0.5, 1.0, 59.9, 10_000.0])
def test_a_quantile_is_within_3_2_percent_of_a_gap(gap_s: float) -> None:
    assert histogram_of(gap_s, 1e5).quantile(0.5) == pytest.approx(gap_s, rel=1 / 32)


def test_nearest_rank_decides_between_neighbours() -> None:
    histogram = histogram_of(*[0.01] * 50, *[0.1] * 49, 1.0)
    assert histogram.quantile(0.5) == pytest.approx(0.01, rel=1 / 32)
    assert histogram.quantile(0.51) == pytest.approx(0.1, rel=1 / 32)
    assert histogram.quantile(0.99) == pytest.approx(0.1, rel=1 / 32)
    assert histogram.quantile(0.991) == pytest.approx(1.0, rel=1 / 32)
    assert histogram.quantile(0.0) == pytest.approx(0.01, rel=1 / 32)


def test_a_quantile_is_never_above_the_longest_gap() -> None:
    assert histogram_of(0.0098).quantile(1.0) == 0.0098


def test_gaps_under_a_microsecond_and_negative_ones_are_zero() -> None:
    histogram = histogram_of(0.0, 9e-7, -1.0)
    assert (histogram.quantile(1.0), histogram.count) == (0.0, 3)


def test_gaps_beyond_reason_share_a_bucket_and_the_longest_is_exact() -> None:
    histogram = histogram_of(1e5, 2e5)
    assert histogram.quantile(0.5) == 2e5
    assert histogram.longest_s == 2e5


def test_the_number_of_buckets_is_bounded() -> None:
    histogram = GapHistogram()
    gap_s = 1e-9
    while gap_s < 1e9:
        histogram.add(gap_s)
        gap_s *= 1.001
    assert len(histogram._buckets) <= 547
