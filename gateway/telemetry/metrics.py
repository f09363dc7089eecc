"""The metrics of the gateway in a registry of their own, and the text of ``/metrics``.

Histograms and token counters come from settled records, at ingest; gauges and request counters are read at each scrape
(:mod:`figures`).  Rates that are estimates, or of several choices at once, are counted and stay out of the histograms.
The only place, with :mod:`figures`, that knows the metrics library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.skew import decode_skew
from gateway.core.stream.summary import Exactness, Flag, StreamSummary
from gateway.telemetry.figures import Figures, FiguresCollector
from gateway.telemetry.fleet_series import FleetSeries
from gateway.telemetry.labels import OTHER, ClosedSet
from gateway.telemetry.request_series import RequestSeries
from gateway.telemetry.series import Series

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

MAX_COMBINATIONS: Final = 256
"""Combinations of model, backend and profile that are told apart; later ones share "other".  They make the page some
50,000 lines, which take about a second to write."""


class Metrics:
    """Owns the registry and the closed sets of label values; used from the event loop's thread."""

    def __init__(self) -> None:
        # The library's own switch, for the whole process: "_created" series double the page and nothing reads them.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # the library's, without types
        self._registry = CollectorRegistry()
        self.models = ClosedSet()
        self.backends = ClosedSet()
        self.profiles = ClosedSet()
        self._combinations: set[tuple[str, str, str]] = set()
        self._read: Callable[[], Figures] | None = None
        self._answers = _Answers(self._registry)
        self._duration = self._histogram(RequestSeries.duration)
        self._gateway_time = self._histogram(RequestSeries.gateway_time)
        self._hold = self._histogram(RequestSeries.hold)
        self._tokens = self._counter(RequestSeries.tokens)
        self._estimated_tokens = self._counter(RequestSeries.estimated_tokens)
        self._excluded = self._counter(RequestSeries.rates_excluded)
        self._records = self._counter(RequestSeries.records)
        self._probes = self._counter(FleetSeries.probes)
        self._transitions = self._counter(FleetSeries.transitions)

    def follow(self, read: Callable[[], Figures]) -> None:
        """Add the gauges that are read at each scrape; ``read`` must be quick and return one consistent view."""
        self._read = read

    async def page(self) -> bytes:
        """The page in Prometheus' text format, of type :data:`CONTENT_TYPE`.

        Written in a thread, so that a page of many models holds nothing up; counting goes on meanwhile.
        """
        return await asyncio.to_thread(self._text, self._figures())

    def text(self) -> bytes:
        """The same page, written at once."""
        return self._text(self._figures())

    def _figures(self) -> Figures | None:
        return None if self._read is None else self._read()

    def _text(self, figures: Figures | None) -> bytes:
        counted = prometheus_client.generate_latest(self._registry)
        if figures is None:
            return counted
        registry = CollectorRegistry()
        registry.register(FiguresCollector(figures))
        return counted + prometheus_client.generate_latest(registry)

    def settled(self, records: Iterable[RequestRecord]) -> None:
        """Count settled requests."""
        for record in records:
            self._settled(record)

    def probed(self, backend: str, path: str, *, result: str) -> None:
        """Count a probe; ``path`` and ``result`` come from closed sets of the prober."""
        self._probes.labels(self.backends.label(backend), path, result).inc()

    def entered(self, backend: str, state: str) -> None:
        """Count a backend's change into ``state``."""
        self._transitions.labels(self.backends.label(backend), state).inc()

    def _settled(self, record: RequestRecord) -> None:
        self._records.inc()
        model, backend, _ = labels = self._labels(record)
        self._duration.labels(record.endpoint, model, backend, record.outcome.value).observe(record.total_s)
        if record.gateway_s is not None:
            self._gateway_time.labels(record.endpoint).observe(record.gateway_s)
        if record.summary is None:
            return
        if record.stream:
            self._hold.labels(record.endpoint).observe(record.hold_max_s)
            self._answers.of(labels).observe(record, record.summary)
            self._count_excluded(record.summary, model, backend)
        self._count_tokens(record.summary, model, backend)

    def _labels(self, record: RequestRecord) -> tuple[str, str, str]:
        """Model, backend and profile, out of the closed sets and in a bounded number of combinations."""
        labels = (
            self.models.label(record.model),
            self.backends.label(record.backend),
            self.profiles.label(record.profile),
        )
        if labels not in self._combinations:
            if len(self._combinations) >= MAX_COMBINATIONS:
                return OTHER, OTHER, OTHER
            self._combinations.add(labels)
        return labels

    def _count_tokens(self, summary: StreamSummary, model: str, backend: str) -> None:
        total = summary.completion_tokens or 0
        if summary.total_exactness is not Exactness.EXACT:
            if total:
                self._estimated_tokens.labels(model, backend).inc(total)
            return
        exact_split = summary.split_exactness is Exactness.EXACT
        reasoning = (summary.reasoning_tokens or 0) if exact_split else 0
        content = (summary.content_tokens or 0) if exact_split else 0
        for kind, count in (
            ("prompt", summary.prompt_tokens or 0),
            ("prompt_cached", summary.cached_tokens or 0),
            ("reasoning", reasoning),
            ("content", content),
            ("undivided", total - reasoning - content),
        ):
            if count > 0:
                self._tokens.labels(model, backend, kind).inc(count)

    def _count_excluded(self, summary: StreamSummary, model: str, backend: str) -> None:
        for rate, value in _rates(summary):
            if value is not None and not _is_comparable(summary, rate):
                self._excluded.labels(model, backend, rate).inc()

    def _histogram(self, series: Series) -> Histogram:
        return _histogram(series, self._registry)

    def _counter(self, series: Series) -> Counter:
        return Counter(series.name, series.help, series.labels, registry=self._registry)


class _Answer:
    """The histograms of one combination of model, backend and profile."""

    def __init__(self, families: dict[str, Histogram], labels: tuple[str, str, str]) -> None:
        gap, skew = families.pop("chunk_gap"), families.pop("skew")
        self._skew = skew.labels(*labels[:2])
        self._gaps = {stat: gap.labels(*labels, stat) for stat in ("p50", "p99", "max")}
        self._plain = {name: family.labels(*labels) for name, family in families.items()}

    def observe(self, record: RequestRecord, summary: StreamSummary) -> None:
        """Put one stream into every histogram that it has a trustworthy value for."""
        _observe(self._plain["ttft"], record.ttft_s)
        _observe(self._plain["ttfv"], record.ttfv_s)
        for rate, value in _rates(summary):
            if _is_comparable(summary, rate):
                _observe(self._plain[rate], value)
        _observe(self._skew, decode_skew(summary))
        _observe(self._gaps["p50"], summary.gap_p50_s)
        _observe(self._gaps["p99"], summary.gap_p99_s)
        _observe(self._gaps["max"], summary.gap_max_s)


class _Answers:
    """Histograms by model, backend and profile."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._families = {
            "ttft": _histogram(RequestSeries.ttft, registry),
            "ttfv": _histogram(RequestSeries.ttfv, registry),
            "decode": _histogram(RequestSeries.decode_rate, registry),
            "reasoning": _histogram(RequestSeries.reasoning_rate, registry),
            "visible": _histogram(RequestSeries.visible_rate, registry),
            "effective_visible": _histogram(RequestSeries.effective_visible_rate, registry),
            "chunk_gap": _histogram(RequestSeries.chunk_gap, registry),
            "skew": _histogram(RequestSeries.decode_skew, registry),
        }
        self._known: dict[tuple[str, str, str], _Answer] = {}

    def of(self, labels: tuple[str, str, str]) -> _Answer:
        """The histograms for ``labels``, made at first use."""
        found = self._known.get(labels)
        if found is None:
            found = self._known[labels] = _Answer(dict(self._families), labels)
        return found


def _histogram(series: Series, registry: CollectorRegistry) -> Histogram:
    return Histogram(series.name, series.help, series.labels, buckets=series.buckets, registry=registry)


def _observe(histogram: Histogram, value: float | None) -> None:
    if value is not None:
        histogram.observe(value)


def _rates(summary: StreamSummary) -> tuple[tuple[str, float | None], ...]:
    return (
        ("decode", summary.decode_tps),
        ("reasoning", summary.reasoning_tps),
        ("visible", summary.visible_tps),
        ("effective_visible", summary.effective_visible_tps),
    )


def _is_comparable(summary: StreamSummary, rate: str) -> bool:
    """Whether ``rate`` is that of one choice and rests on the engine's own counts.

    The total is enough for decode, the channels need the split.  Several choices are several streams in one: together
    they are faster than any of them.
    """
    if summary.total_exactness is not Exactness.EXACT or Flag.SEVERAL_CHOICES in summary.flags:
        return False
    return rate == "decode" or summary.split_exactness is Exactness.EXACT
