"""The catalogues of metrics: names that Prometheus takes, units, meanings, and buckets with a reason."""

from __future__ import annotations

import re

import pytest

from gateway.telemetry.fleet_series import FleetSeries
from gateway.telemetry.request_series import RequestSeries
from gateway.telemetry.series import Kind, Series, series_of

EVERY = [*series_of(RequestSeries), *series_of(FleetSeries)]


def test_there_are_metrics_and_no_name_comes_twice() -> None:
    names = [series.name for series in EVERY]
    assert len(names) > 30
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("series", EVERY, ids=lambda series: series.name)
def test_a_metric_is_named_and_described_as_prometheus_wants_it(series: Series) -> None:
    assert re.fullmatch(r"pacekeeper_[a-z0-9_]+", series.name)
    assert series.name.endswith("_total") == (series.kind is Kind.COUNTER)
    assert series.help.endswith(".")
    assert all(re.fullmatch(r"[a-z_]+", label) for label in series.labels)


@pytest.mark.parametrize("series", EVERY, ids=lambda series: series.name)
def test_only_histograms_have_buckets_which_rise_and_have_a_reason(series: Series) -> None:
    assert bool(series.buckets) == bool(series.why) == (series.kind is Kind.HISTOGRAM)
    assert list(series.buckets) == sorted(set(series.buckets))
