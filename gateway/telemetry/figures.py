"""Gauges of fleet and gateway, made at the moment of a scrape from one consistent reading of what control knows.

So a backend that left the fleet leaves ``/metrics`` with it, and no gauge can go stale.  Also the request counters that
the workers' heartbeats carry.  Must not change what it reads.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.routing.backend import BackendState
from gateway.ports import BackendReport, StatusReport
from gateway.telemetry.fleet_series import FleetSeries as F
from gateway.telemetry.request_series import RequestSeries as R
from gateway.telemetry.series import Kind, Series

LabelValues = TypeVar("LabelValues", bound=tuple[str, ...])


class OutcomeKey(NamedTuple):
    """What requests are counted by; ``status`` is a class such as "2xx"."""

    endpoint: str
    model: str
    backend: str
    outcome: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that control knows at one moment.

    ``silent_s``: time since the last heartbeat, by pid; ``refusals`` by "pool|reason".
    """

    status: StatusReport
    backends: tuple[BackendReport, ...]
    outcomes: Mapping[OutcomeKey, int]
    silent_s: Mapping[int, float] = field(default_factory=dict)
    dropped: int = 0
    tap_failures: int = 0
    log_dropped: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)


class FiguresCollector(Collector):
    """Turns figures into metric families."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def describe(self) -> list[Metric]:
        """No names in advance: they would cost a second :meth:`collect`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family once."""
        figures = self._figures
        yield from _requests(figures)
        yield from _backends(figures.backends)
        yield from _pools(figures.status)
        yield from _workers(figures)
        yield from _gateway(figures)


def _family(series: Series, samples: Mapping[LabelValues, float]) -> Metric:
    family: CounterMetricFamily | GaugeMetricFamily
    if series.kind is Kind.COUNTER:
        family = CounterMetricFamily(series.name, series.help, labels=series.labels)
    else:
        family = GaugeMetricFamily(series.name, series.help, labels=series.labels)
    for labels, value in samples.items():
        family.add_metric(labels, value)
    return family


def _requests(figures: Figures) -> Iterator[Metric]:
    yield _family(R.requests, figures.outcomes)
    yield _family(R.records_dropped, {(): figures.dropped})
    yield _family(R.tap_failures, {(): figures.tap_failures})
    yield _family(R.refusals, {_pool_and_reason(key): count for key, count in figures.refusals.items()})


def _pool_and_reason(key: str) -> tuple[str, str]:
    pool, _, reason = key.rpartition("|")
    return pool, reason


def _backends(backends: tuple[BackendReport, ...]) -> Iterator[Metric]:
    yield _family(
        F.backend_state,
        {(it.pool, it.name, state.value): float(it.state is state) for it in backends for state in BackendState},
    )
    yield _family(F.backend_in_flight, {(it.pool, it.name): it.in_flight for it in backends})
    for series, values in (
        (F.engine_running, {(it.pool, it.name): it.engine_running for it in backends}),
        (F.engine_waiting, {(it.pool, it.name): it.engine_waiting for it in backends}),
        (F.engine_tokens, {(it.pool, it.name): it.generation_tokens for it in backends}),
    ):
        yield _family(series, {labels: value for labels, value in values.items() if value is not None})


def _pools(status: StatusReport) -> Iterator[Metric]:
    yield _family(F.pool_serving, {(pool.name,): pool.serving for pool in status.pools})
    yield _family(F.pool_waiting, {(pool.name,): pool.waiting for pool in status.pools})
    yield _family(F.pool_longest_wait, {(pool.name,): pool.longest_wait_s or 0.0 for pool in status.pools})
    yield _family(F.pool_min_available, {(pool.name,): pool.min_available for pool in status.pools})


def _workers(figures: Figures) -> Iterator[Metric]:
    """By slot, which outlives the process in it; for a moment two may be in one."""
    workers = figures.status.workers
    yield _family(F.worker_info, {(str(it.slot), str(it.pid)): 1 for it in workers})
    in_flight, connections, silent_s = Counter[tuple[str]](), Counter[tuple[str]](), dict[tuple[str], float]()
    for it in workers:
        slot = (str(it.slot),)
        in_flight[slot] += it.in_flight
        connections[slot] += it.connections
        silent_s[slot] = max(silent_s.get(slot, 0.0), figures.silent_s.get(it.pid, 0.0))
    yield _family(F.worker_in_flight, in_flight)
    yield _family(F.worker_connections, connections)
    yield _family(F.worker_silent, silent_s)


def _gateway(figures: Figures) -> Iterator[Metric]:
    status = figures.status
    yield _family(F.in_flight, {(): status.in_flight})
    yield _family(F.generation, {(): status.generation})
    yield _family(F.build_info, {(status.version, platform.python_version()): 1})
    yield _family(F.started, {(): status.started_wall})
    yield _family(F.config_loaded, {(): status.config_loaded_wall})
    yield _family(F.history_rows, {(): status.store_rows})
    yield _family(F.history_usable, {(): float(not status.store_problem)})
    if status.keys is not None:
        yield _family(F.keys, {(): status.keys})
        yield _family(F.keys_usable, {(): float(not status.keys_problem)})
    yield _family(F.quarantined, {(): status.quarantined})
    yield _family(F.stopping, {(): float(status.stop_left_s is not None)})
    yield _family(F.log_dropped, {(): figures.log_dropped})
