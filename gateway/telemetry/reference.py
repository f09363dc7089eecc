"""The reference page of the metrics, made from their catalogues.

``python -m gateway.telemetry.reference > docs/metrics.md`` writes it; a test compares the two, so that no metric is
without its labels, meaning and reasons.
"""

from __future__ import annotations

import sys
from typing import Final

from gateway.telemetry.fleet_series import FleetSeries
from gateway.telemetry.request_series import RequestSeries
from gateway.telemetry.series import Kind, Series, series_of

_INTRODUCTION: Final = """\
# Metrics

<!-- Made by `python -m gateway.telemetry.reference > docs/metrics.md`; change the catalogues, not this page. -->

`GET /metrics` on the operators' address, in Prometheus' text format, without a token. Control makes the page; counters
begin anew when control restarts, except those about requests, which come from the workers' own counters.

- **Labels** come from closed sets. `model` is a name that the fleet serves (at most 256 since the start), else `other`;
  `backend`, `pool` and `profile` are names from the configuration; `status` is a class (`2xx`, `4xx`, `none`). Of what
  comes from records at most 256 combinations of model, backend and profile are told apart; the rest are `other`.
- **Exact or best effort.** `pacekeeper_requests_total` is exact. What is made of records of settled requests lacks those
  that `pacekeeper_records_dropped_total` counts.
- **Rates** stand in histograms only where the engine counted the tokens, and of one choice. A rate made from the length
  of text, of several choices at once, or of a client that held the answer back, is counted in `pacekeeper_rates_excluded_total` and stands in none.
- **Definitions** of instants and rates are those of the [log event](events.md) `request.settled`.
"""

_PARTS: Final = (
    (RequestSeries, "Requests"),
    (FleetSeries, "Fleet, workers and the gateway itself"),
)


def render() -> str:
    """The whole page, as Markdown."""
    lines = [_INTRODUCTION]
    for catalogue, title in _PARTS:
        lines += [f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        lines += [_row(series) for series in series_of(catalogue)]
        lines.append("")
        histograms = [series for series in series_of(catalogue) if series.kind is Kind.HISTOGRAM]
        if histograms:
            lines += ["### Buckets", "", "| metric | upper bounds | why |", "|---|---|---|"]
            lines += [_buckets(series) for series in histograms]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _row(series: Series) -> str:
    labels = ", ".join(f"`{label}`" for label in series.labels) or "-"
    return f"| `{series.name}` | {series.kind} | {labels} | {series.help} |"


def _buckets(series: Series) -> str:
    bounds = ", ".join(f"{bound:g}" for bound in series.buckets)
    return f"| `{series.name}` | {bounds} | {series.why} |"


if __name__ == "__main__":
    sys.stdout.write(render())
