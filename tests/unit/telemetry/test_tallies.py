"""Counters and histograms of our own make the very page that the metrics library's would."""

from __future__ import annotations

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram

from gateway.telemetry.series import Kind, Series
from gateway.telemetry.tallies import Tallies

WAITS = Series(
    name="waits_seconds",
    kind=Kind.HISTOGRAM,
    help="Waits.",
    labels=("model", "backend"),
    buckets=(0.0001, 0.01, 1.0, 80.0, 2_500_000.0),
)
BARE = Series(name="bare_seconds", kind=Kind.HISTOGRAM, help="Without labels.", buckets=(0.5,))
TOKENS = Series(name="tokens_total", kind=Kind.COUNTER, help="Tokens.", labels=("model", "kind"))
RECORDS = Series(name="records_total", kind=Kind.COUNTER, help="Records.")

labels = st.tuples(*[st.sampled_from(["a", 'quo"ted', "line\nbreak", "ü", ""])] * 2)
values = st.floats(min_value=0, max_value=1e7) | st.sampled_from(WAITS.buckets)
events = st.lists(
    st.tuples(st.just("wait"), labels, values)
    | st.tuples(st.just("bare"), st.just(()), values)
    | st.tuples(st.just("tokens"), labels, st.integers(1, 10**9))
    | st.tuples(st.just("record"), st.just(()), st.just(1)),
    max_size=30,
)


def page_of_the_library(told: list) -> list[str]:
    registry = CollectorRegistry()
    prometheus_client.disable_created_metrics()
    waits = Histogram(WAITS.name, WAITS.help, WAITS.labels, buckets=WAITS.buckets, registry=registry)
    bare = Histogram(BARE.name, BARE.help, buckets=BARE.buckets, registry=registry)
    tokens = Counter(TOKENS.name, TOKENS.help, TOKENS.labels, registry=registry)
    records = Counter(RECORDS.name, RECORDS.help, registry=registry)
    for what, at, value in told:
        match what:
            case "wait":
                waits.labels(*at).observe(value)
            case "bare":
                bare.observe(value)
            case "tokens":
                tokens.labels(*at).inc(value)
            case _:
                records.inc()
    return prometheus_client.generate_latest(registry).decode().splitlines()


def page_of_ours(told: list) -> list[str]:
    tallies = Tallies()
    waits, bare = tallies.histograms(WAITS), tallies.histograms(BARE)
    tokens, records = tallies.count(TOKENS), tallies.count(RECORDS)
    bare.of()  # as the library's: without labels it is there from the start
    for what, at, value in told:
        match what:
            case "wait":
                waits.of(*at).observe(value)
            case "bare":
                bare.of().observe(value)
            case "tokens":
                tokens.add(at, value)
            case _:
                records.add(at)
    registry = CollectorRegistry()
    registry.register(tallies.picture())
    return prometheus_client.generate_latest(registry).decode().splitlines()


@given(events)
def test_the_page_is_the_librarys_line_for_line(told: list) -> None:
    assert page_of_ours(told) == page_of_the_library(told)


def test_a_value_on_a_bound_lies_under_it() -> None:
    waits = Tallies().histograms(WAITS)
    waits.of("m", "a").observe(0.01)
    waits.of("m", "a").observe(1e9)
    ((counts, total),) = waits.values().values()
    assert (counts, total) == ((0, 1, 0, 0, 0, 1), 1e9 + 0.01)


def test_a_picture_does_not_change_when_counting_goes_on() -> None:
    tallies = Tallies()
    waits, tokens = tallies.histograms(WAITS), tallies.count(TOKENS)
    waits.of("m", "a").observe(0.5)
    tokens.add(("m", "prompt"), 5)
    picture = tallies.picture()
    registry = CollectorRegistry()
    registry.register(picture)
    before = prometheus_client.generate_latest(registry)
    waits.of("m", "a").observe(0.5)
    waits.of("m", "b").observe(0.5)
    tokens.add(("m", "prompt"), 5)
    tokens.add(("n", "prompt"), 5)
    assert prometheus_client.generate_latest(registry) == before


@pytest.mark.parametrize("series", [WAITS, TOKENS])
def test_a_series_with_labels_has_no_values_before_the_first(series: Series) -> None:
    tallies = Tallies()
    made = tallies.histograms(series) if series.kind is Kind.HISTOGRAM else tallies.count(series)
    assert made.values() == {}
