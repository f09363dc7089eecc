"""The page of the metrics is as new as their catalogues."""

from __future__ import annotations

from pathlib import Path

from gateway.telemetry.fleet_series import FleetSeries
from gateway.telemetry.reference import render
from gateway.telemetry.request_series import RequestSeries
from gateway.telemetry.series import series_of

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_page_is_fresh() -> None:
    made = "python -m gateway.telemetry.reference > docs/metrics.md"
    assert PAGE.read_text(encoding="utf-8") == render(), f"run `{made}`"


def test_the_page_has_every_metric_once() -> None:
    page = render()
    for catalogue in (RequestSeries, FleetSeries):
        for series in series_of(catalogue):
            assert page.count(f"| `{series.name}` | {series.kind} |") == 1
