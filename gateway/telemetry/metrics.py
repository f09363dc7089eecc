"""The metrics of the gateway, and the text of ``/metrics``.

Histograms and token counters come from settled records, at ingest (:mod:`tallies`); gauges and request counters are
read at each scrape (:mod:`figures`).  Rates that are estimates, or of several choices at once, are counted and stay out
of the histograms.  Must not know the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.skew import decode_skew
from gateway.core.stream.summary import Exactness, Flag, StreamSummary
from gateway.telemetry.figures import Figures, FiguresCollector
from gateway.telemetry.fleet_series import FleetSeries
from gateway.telemetry.labels import OTHER, ClosedSet
from gateway.telemetry.request_series import RequestSeries
from gateway.telemetry.tallies import Distribution, Picture, Tallies

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

MAX_COMBINATIONS: Final = 256
"""Combinations of model, backend and profile that are told apart; later ones share "other".  They make the page some
50,000 lines, which take about a second to write."""


class Metrics:
    """Owns the registry and the closed sets of label values; used from the event loop's thread."""

    def __init__(self) -> None:
        self.models = ClosedSet()
        self.backends = ClosedSet()
        self.profiles = ClosedSet()
        self.keys = ClosedSet()
        self._combinations: set[tuple[str, str, str]] = set()
        self._read: Callable[[], Figures] | None = None
        self._tallies = tallies = Tallies()
        self._answers = _Answers(tallies)
        self._duration = tallies.histograms(RequestSeries.duration)
        self._gateway_time = tallies.histograms(RequestSeries.gateway_time)
        self._hold = tallies.histograms(RequestSeries.hold)
        self._queue_time = tallies.histograms(RequestSeries.queue_time)
        self._key_requests = tallies.count(RequestSeries.key_requests)
        self._key_tokens = tallies.count(RequestSeries.key_tokens)
        self._tokens = tallies.count(RequestSeries.tokens)
        self._estimated_tokens = tallies.count(RequestSeries.estimated_tokens)
        self._excluded = tallies.count(RequestSeries.rates_excluded)
        self._records = tallies.count(RequestSeries.records)
        self._probes = tallies.count(FleetSeries.probes)
        self._transitions = tallies.count(FleetSeries.transitions)

    def follow(self, read: Callable[[], Figures]) -> None:
        """Add the gauges that are read at each scrape; ``read`` must be quick and return one consistent view."""
        self._read = read

    async def page(self) -> bytes:
        """The page in Prometheus' text format, of type :data:`CONTENT_TYPE`.

        Written in a thread, so that a page of many models holds nothing up; counting goes on meanwhile.
        """
        return await asyncio.to_thread(_text, self._tallies.picture(), self._figures())

    def text(self) -> bytes:
        """The same page, written at once."""
        return _text(self._tallies.picture(), self._figures())

    def _figures(self) -> Figures | None:
        return None if self._read is None else self._read()

    def settled(self, records: Iterable[RequestRecord]) -> None:
        """Count settled requests."""
        for record in records:
            self._settled(record)

    def probed(self, backend: str, path: str, *, result: str) -> None:
        """Count a probe; ``path`` and ``result`` come from closed sets of the prober."""
        self._probes.add((self.backends.label(backend), path, result))

    def entered(self, backend: str, state: str) -> None:
        """Count a backend's change into ``state``."""
        self._transitions.add((self.backends.label(backend), state))

    def _settled(self, record: RequestRecord) -> None:
        self._records.add(())
        model, backend, _ = labels = self._labels(record)
        self._duration.of(record.endpoint, model, backend, record.outcome.value).observe(record.total_s)
        if record.gateway_s is not None:
            self._gateway_time.of(record.endpoint).observe(record.gateway_s)
        if record.queue_s is not None and record.backend:
            self._queue_time.of(record.pool).observe(record.queue_s)
        if record.key_id:
            self._count_key(record)
        if record.summary is None:
            return
        if record.stream:
            self._hold.of(record.endpoint).observe(record.hold_max_s)
            answer = self._answers.of(labels)
            answer.observe(record, record.summary)
            self._observe_rates(record.summary, answer, labels)
        self._count_tokens(record.summary, model, backend)

    def _count_key(self, record: RequestRecord) -> None:
        key = self.keys.label(record.key_id)
        self._key_requests.add((key, record.outcome.value))
        if record.summary is not None:
            self._key_tokens.add((key, "prompt"), record.summary.prompt_tokens or 0)
            self._key_tokens.add((key, "completion"), record.summary.completion_tokens or 0)

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
                self._estimated_tokens.add((model, backend), total)
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
                self._tokens.add((model, backend, kind), count)

    def _observe_rates(self, summary: StreamSummary, answer: _Answer, labels: tuple[str, str, str]) -> None:
        """Rates that can be compared into their histograms, the others into the count of those left out.

        A rate has to rest on the engine's own counts: the total is enough for decode, the channels need the split.
        Several choices are several streams in one: together they are faster than any of them.  A client that held the
        answer back set the pace itself, and what came in one burst with the first token came in no time.
        """
        whole = summary.total_exactness is Exactness.EXACT and _INCOMPARABLE.isdisjoint(summary.flags)
        split = whole and summary.split_exactness is Exactness.EXACT
        for rate, value, comparable in (
            ("decode", summary.decode_tps, whole),
            ("reasoning", summary.reasoning_tps, split),
            ("visible", summary.visible_tps, split),
            ("effective_visible", summary.effective_visible_tps, split),
        ):
            if value is None:
                continue
            if comparable:
                answer.rates[rate].observe(value)
            else:
                self._excluded.add((*labels[:2], rate))


_INCOMPARABLE: Final = frozenset({Flag.SEVERAL_CHOICES, Flag.CLIENT_BLOCKED, Flag.BURST_START})


class _Answers:
    """The histograms of streams by model, backend and profile."""

    def __init__(self, tallies: Tallies) -> None:
        self._ttft = tallies.histograms(RequestSeries.ttft)
        self._ttfv = tallies.histograms(RequestSeries.ttfv)
        self._rates = {
            "decode": tallies.histograms(RequestSeries.decode_rate),
            "reasoning": tallies.histograms(RequestSeries.reasoning_rate),
            "visible": tallies.histograms(RequestSeries.visible_rate),
            "effective_visible": tallies.histograms(RequestSeries.effective_visible_rate),
        }
        self._gap = tallies.histograms(RequestSeries.chunk_gap)
        self._skew = tallies.histograms(RequestSeries.decode_skew)
        self._known: dict[tuple[str, str, str], _Answer] = {}

    def of(self, labels: tuple[str, str, str]) -> _Answer:
        """The histograms for ``labels``, made at first use."""
        found = self._known.get(labels)
        if found is None:
            found = self._known[labels] = _Answer(
                ttft=self._ttft.of(*labels),
                ttfv=self._ttfv.of(*labels),
                rates={name: family.of(*labels) for name, family in self._rates.items()},
                gap_p50=self._gap.of(*labels, "p50"),
                gap_p99=self._gap.of(*labels, "p99"),
                gap_max=self._gap.of(*labels, "max"),
                skew=self._skew.of(*labels[:2]),
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The histograms of one combination of model, backend and profile."""

    ttft: Distribution
    ttfv: Distribution
    rates: dict[str, Distribution]
    gap_p50: Distribution
    gap_p99: Distribution
    gap_max: Distribution
    skew: Distribution

    def observe(self, record: RequestRecord, summary: StreamSummary) -> None:
        """Put one stream into every histogram that it has a value for, save those of rates."""
        for histogram, value in (
            (self.ttft, record.ttft_s),
            (self.ttfv, record.ttfv_s),
            (self.gap_p50, summary.gap_p50_s),
            (self.gap_p99, summary.gap_p99_s),
            (self.gap_max, summary.gap_max_s),
            (self.skew, decode_skew(summary)),
        ):
            if value is not None:
                histogram.observe(value)


def _text(counted: Picture, figures: Figures | None) -> bytes:
    registry = CollectorRegistry()
    registry.register(counted)
    if figures is not None:
        registry.register(FiguresCollector(figures))
    return prometheus_client.generate_latest(registry)
