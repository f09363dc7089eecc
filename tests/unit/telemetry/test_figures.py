"""Gauges at the moment of a scrape: exactly what control knows then."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.routing.backend import BackendState
from gateway.ports import PoolReport, StatusReport, WorkerReport
from gateway.telemetry.figures import Figures, OutcomeKey
from gateway.telemetry.fleet_series import FleetSeries
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_series import RequestSeries
from gateway.telemetry.series import series_of
from tests.fakes.operators import backend_of

STATUS = StatusReport(
    summary="all well",
    version="1.2.3",
    started_wall=100.0,
    config_path="/c.yaml",
    config_loaded_wall=200.0,
    generation=7,
    in_flight=3,
    pools=(
        PoolReport(
            name="kimi", models=("m",), serving=1, backends=2, min_available=1, waiting=2, longest_wait_s=1.5, refused=3
        ),
    ),
    workers=(
        WorkerReport(slot=0, pid=11, started_wall=1.0, generation=7, in_flight=3, connections=9, dropped=0, fresh=True),
    ),
    outcomes={"ok": 5},
    store_rows=42,
    store_problem="",
    keys=2,
    keys_problem="",
    quarantined=4,
    stop_left_s=9.0,
)
KEY = OutcomeKey(endpoint="chat", model="m", backend="a", outcome="ok", status="2xx")
FIGURES = Figures(
    status=STATUS,
    backends=(backend_of("a"), backend_of("b", state=BackendState.EJECTED)),
    outcomes={KEY: 5},
    silent_s={11: 0.25},
    dropped=2,
    tap_failures=1,
    log_dropped=4,
    refusals={"kimi|queue_full": 3, "|invalid_api_key": 1},
)


def page(figures: Figures) -> dict[str, dict[tuple[str, ...], float]]:
    metrics = Metrics()
    metrics.follow(lambda: figures)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_a_backend_is_in_exactly_one_state() -> None:
    states = page(FIGURES)["pacekeeper_backend_state"]
    assert len(states) == 2 * len(BackendState)
    ones = {labels for labels, value in states.items() if value == 1.0}
    assert {frozenset(labels) for labels in ones} == {
        frozenset({"kimi", "a", "serving"}),
        frozenset({"kimi", "b", "ejected"}),
    }


def test_the_rest_is_told_as_it_is() -> None:
    found = page(FIGURES)
    expected = {
        "pacekeeper_pool_serving": 1.0,
        "pacekeeper_in_flight": 3.0,
        "pacekeeper_snapshot_generation": 7.0,
        "pacekeeper_worker_in_flight": 3.0,
        "pacekeeper_worker_connections": 9.0,
        "pacekeeper_worker_heartbeat_age_seconds": 0.25,
        "pacekeeper_control_start_time_seconds": 100.0,
        "pacekeeper_config_loaded_timestamp_seconds": 200.0,
        "pacekeeper_history_rows": 42.0,
        "pacekeeper_history_usable": 1.0,
        "pacekeeper_records_dropped_total": 2.0,
        "pacekeeper_tap_failures_total": 1.0,
        "pacekeeper_log_lines_dropped_total": 4.0,
        "pacekeeper_requests_total": 5.0,
    }
    assert {name: list(found[name].values()) for name in expected} == {
        name: [value] for name, value in expected.items()
    }


def test_a_worker_is_known_by_its_slot_and_its_process_only_by_the_info() -> None:
    (first,) = STATUS.workers
    second = msgspec.structs.replace(first, pid=12, in_flight=1, connections=2)
    status = msgspec.structs.replace(STATUS, workers=(first, second, msgspec.structs.replace(first, slot=1, pid=13)))
    found = page(Figures(status=status, backends=(), outcomes={}, silent_s={11: 0.25, 12: 3.0, 13: 0.5}))
    assert set(found["pacekeeper_worker_info"]) == {("11", "0"), ("12", "0"), ("13", "1")}  # pid, slot
    assert found["pacekeeper_worker_in_flight"] == {("0",): 4.0, ("1",): 3.0}
    assert found["pacekeeper_worker_connections"] == {("0",): 11.0, ("1",): 9.0}
    assert found["pacekeeper_worker_heartbeat_age_seconds"] == {("0",): 3.0, ("1",): 0.5}


def test_what_an_engine_does_not_say_is_left_out() -> None:
    found = page(FIGURES)
    assert "pacekeeper_engine_waiting" not in found  # the fake's engines do not tell
    assert len(found["pacekeeper_engine_running"]) == 2


def test_refusals_and_keys_are_told() -> None:
    found = page(FIGURES)
    refusals = {frozenset(labels): value for labels, value in found["pacekeeper_refusals_total"].items()}
    assert refusals == {frozenset({"kimi", "queue_full"}): 3.0, frozenset({"", "invalid_api_key"}): 1.0}
    assert list(found["pacekeeper_keys"].values()) == [2.0]
    assert list(found["pacekeeper_keys_file_usable"].values()) == [1.0]
    without = msgspec.structs.replace(STATUS, keys=None)
    assert "pacekeeper_keys" not in page(Figures(status=without, backends=(), outcomes={}))


def test_a_store_in_trouble_is_not_usable() -> None:
    figures = msgspec.structs.replace(STATUS, store_problem="the disk is full")
    assert list(page(Figures(status=figures, backends=(), outcomes={}))["pacekeeper_history_usable"].values()) == [0.0]


def test_every_series_of_the_catalogue_is_on_the_page_or_counted_elsewhere() -> None:
    metrics = Metrics()
    metrics.follow(lambda: FIGURES)
    text = metrics.text().decode()
    for catalogue in (FleetSeries, RequestSeries):
        for series in series_of(catalogue):
            assert f"# TYPE {series.name} {series.kind}" in text


def test_queues_the_quarantine_and_a_stop_are_told() -> None:
    found = page(FIGURES)
    assert found["pacekeeper_pool_waiting"] == {("kimi",): 2.0}
    assert found["pacekeeper_pool_longest_wait_seconds"] == {("kimi",): 1.5}
    assert found["pacekeeper_quarantined"] == {(): 4.0}
    assert found["pacekeeper_stopping"] == {(): 1.0}
    going_on = replace(FIGURES, status=msgspec.structs.replace(STATUS, stop_left_s=None))
    assert page(going_on)["pacekeeper_stopping"] == {(): 0.0}
