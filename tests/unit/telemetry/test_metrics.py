"""Metrics of settled requests: what is counted, under which labels, and what must not be."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Ending, EngineMetrics, Exactness, Flag, Outcome, StreamSummary
from gateway.telemetry import metrics as metrics_module
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_series import RequestSeries
from gateway.telemetry.series import Kind, series_of
from tests.fakes.settled import record_of

LABELS = {"model": "kimi-k2.5", "backend": "a", "profile": "stock"}


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, frozenset(labels.items())))


def made(*records: RequestRecord) -> Metrics:
    metrics = Metrics()
    metrics.models.allow(["kimi-k2.5"])
    metrics.backends.allow(["a"])
    metrics.profiles.allow(["stock"])
    metrics.settled(records)
    return metrics


def exact(**summary: object) -> RequestRecord:
    """The usual record: 512 tokens, half reasoning, 80 tok/s, with an exact split and gaps."""
    record = record_of()
    assert record.summary is not None
    given = {"split_exactness": Exactness.EXACT, "gap_p50_s": 0.0125, "gap_p99_s": 0.02, "gap_max_s": 0.3} | summary
    return msgspec.structs.replace(record, summary=msgspec.structs.replace(record.summary, **given))


RATES = [
    ("pacekeeper_decode_tokens_per_second", 80.0),
    ("pacekeeper_reasoning_tokens_per_second", 80.0),
    ("pacekeeper_visible_tokens_per_second", 80.0),
    ("pacekeeper_effective_visible_tokens_per_second", 40.0),
]


@pytest.mark.parametrize("name,rate", RATES)
def test_an_exact_stream_stands_in_every_rate(name: str, rate: float) -> None:
    metrics = made(exact())
    assert value(metrics, f"{name}_sum", **LABELS) == rate
    assert value(metrics, f"{name}_count", **LABELS) == 1.0
    assert not any(key.startswith("pacekeeper_rates_excluded") for key, _ in samples(metrics))


def test_waits_gaps_and_own_share_are_observed() -> None:
    metrics = made(exact())
    assert value(metrics, "pacekeeper_time_to_first_token_seconds_sum", **LABELS) == 0.1
    assert value(metrics, "pacekeeper_time_to_first_visible_seconds_sum", **LABELS) == 3.3
    assert value(metrics, "pacekeeper_chunk_gap_seconds_sum", stat="p50", **LABELS) == 0.0125
    assert value(metrics, "pacekeeper_chunk_gap_seconds_sum", stat="p99", **LABELS) == 0.02
    assert value(metrics, "pacekeeper_chunk_gap_seconds_sum", stat="max", **LABELS) == 0.3
    assert value(metrics, "pacekeeper_gateway_seconds_sum", endpoint="chat") == 0.0004
    assert value(metrics, "pacekeeper_hold_seconds_count", endpoint="chat") == 1.0
    ended = {"endpoint": "chat", "model": "kimi-k2.5", "backend": "a", "outcome": "ok"}
    assert value(metrics, "pacekeeper_request_duration_seconds_sum", **ended) == 6.5


def test_an_estimated_split_keeps_the_total_rate_and_leaves_the_channels_out() -> None:
    metrics = made(exact(split_exactness=Exactness.ESTIMATED))
    assert value(metrics, "pacekeeper_decode_tokens_per_second_count", **LABELS) == 1.0
    for name, _ in RATES[1:]:
        assert value(metrics, f"{name}_count", **LABELS) == 0.0
    for rate in ("reasoning", "visible", "effective_visible"):
        excluded = {"model": "kimi-k2.5", "backend": "a", "rate": rate}
        assert value(metrics, "pacekeeper_rates_excluded_total", **excluded) == 1.0


def test_an_estimated_total_stands_in_no_rate_and_in_no_token_counter() -> None:
    metrics = made(exact(total_exactness=Exactness.ESTIMATED))
    for name, _ in RATES:
        assert value(metrics, f"{name}_count", **LABELS) == 0.0
    assert value(metrics, "pacekeeper_rates_excluded_total", model="kimi-k2.5", backend="a", rate="decode") == 1.0
    assert value(metrics, "pacekeeper_estimated_tokens_total", model="kimi-k2.5", backend="a") == 512.0
    assert not any(key == "pacekeeper_tokens_total" for key, _ in samples(metrics))


def test_nothing_known_counts_as_nothing() -> None:
    metrics = made(exact(total_exactness=Exactness.UNKNOWN, completion_tokens=None, decode_tps=None))
    assert value(metrics, "pacekeeper_estimated_tokens_total", model="kimi-k2.5", backend="a") is None


@pytest.mark.parametrize(
    "split,expected",
    [
        (Exactness.EXACT, {"prompt": 123.0, "prompt_cached": 100.0, "reasoning": 256.0, "content": 256.0}),
        (Exactness.ESTIMATED, {"prompt": 123.0, "prompt_cached": 100.0, "undivided": 512.0}),
    ],
)
def test_tokens_are_counted_by_kind_and_never_divided_by_guess(split: Exactness, expected: dict[str, float]) -> None:
    metrics = made(exact(split_exactness=split, cached_tokens=100))
    found = {
        dict(labels)["kind"]: count
        for (name, labels), count in samples(metrics).items()
        if name == "pacekeeper_tokens_total"
    }
    assert found == expected


def test_names_that_nobody_configured_become_other() -> None:
    record = msgspec.structs.replace(exact(), model="../../etc", backend="ghost", profile="x")
    other = {"model": "other", "backend": "other", "profile": "other"}
    assert value(made(record), "pacekeeper_decode_tokens_per_second_count", **other) == 1.0


def test_a_rejected_request_without_summary_counts_with_its_duration_only() -> None:
    record = RequestRecord(
        request_id="r",
        slot=0,
        accepted_wall=1.0,
        endpoint="chat",
        method="POST",
        status=400,
        outcome=Outcome.REJECTED,
        ending=Ending.REJECTED,
        total_s=0.01,
    )
    metrics = made(record)
    labels = {"endpoint": "chat", "model": "", "backend": "", "outcome": "rejected"}
    assert value(metrics, "pacekeeper_request_duration_seconds_count", **labels) == 1.0
    assert value(metrics, "pacekeeper_records_total") == 1.0


def test_an_answer_that_is_no_stream_has_tokens_but_no_rates() -> None:
    summary = StreamSummary(completion_tokens=5, prompt_tokens=3, total_exactness=Exactness.EXACT)
    metrics = made(msgspec.structs.replace(record_of(), stream=False, summary=summary))
    assert value(metrics, "pacekeeper_tokens_total", model="kimi-k2.5", backend="a", kind="undivided") == 5.0
    assert value(metrics, "pacekeeper_decode_tokens_per_second_count", **LABELS) is None


def test_combinations_of_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "MAX_COMBINATIONS", 2)
    metrics = made()
    metrics.models.allow([f"m{number}" for number in range(5)])
    metrics.settled(msgspec.structs.replace(exact(), model=f"m{number}") for number in range(5))
    metrics.settled([msgspec.structs.replace(exact(), model="m0")])
    rates, lengths = "pacekeeper_decode_tokens_per_second_count", "pacekeeper_request_duration_seconds_count"
    ended = {"endpoint": "chat", "outcome": "ok"}
    assert value(metrics, rates, model="m0", backend="a", profile="stock") == 2.0
    assert value(metrics, rates, model="other", backend="other", profile="other") == 3.0
    assert value(metrics, lengths, model="m0", backend="a", **ended) == 2.0
    assert value(metrics, lengths, model="other", backend="other", **ended) == 3.0
    assert value(metrics, "pacekeeper_tokens_total", model="m4", backend="a", kind="prompt") is None


def test_several_choices_at_once_are_no_rate_of_one_stream() -> None:
    summary = {"flags": (Flag.SEVERAL_CHOICES,), "reasoning_tps": None, "visible_tps": None}
    metrics = made(exact(effective_visible_tps=None, engine=EngineMetrics(mean_itl_ms=12.5), **summary))
    for name, _ in RATES:
        assert value(metrics, f"{name}_count", **LABELS) == 0.0
    assert value(metrics, "pacekeeper_rates_excluded_total", model="kimi-k2.5", backend="a", rate="decode") == 1.0
    assert value(metrics, "pacekeeper_decode_skew_ratio_count", model="kimi-k2.5", backend="a") == 0.0
    assert value(metrics, "pacekeeper_tokens_total", model="kimi-k2.5", backend="a", kind="prompt") == 123.0


def test_how_far_the_engine_and_we_are_apart_is_observed_where_the_engine_tells() -> None:
    metrics = made(exact(), exact(engine=EngineMetrics(mean_itl_ms=12.125)))
    labels = {"model": "kimi-k2.5", "backend": "a"}
    assert value(metrics, "pacekeeper_decode_skew_ratio_sum", **labels) == 0.97
    assert value(metrics, "pacekeeper_decode_skew_ratio_count", **labels) == 1.0


@pytest.mark.asyncio
async def test_the_page_that_a_thread_writes_is_the_same() -> None:
    metrics = made(exact())
    assert await metrics.page() == metrics.text()


def test_probes_and_states_are_counted() -> None:
    metrics = made()
    metrics.probed("a", "/health", result="ok")
    metrics.probed("ghost", "/health", result="refused")
    metrics.entered("a", "serving")
    assert value(metrics, "pacekeeper_probes_total", backend="a", path="/health", result="ok") == 1.0
    assert value(metrics, "pacekeeper_probes_total", backend="other", path="/health", result="refused") == 1.0
    assert value(metrics, "pacekeeper_backend_transitions_total", backend="a", state="serving") == 1.0


def test_the_page_has_no_series_that_the_catalogue_lacks() -> None:
    known = {series.name for series in series_of(RequestSeries)}
    ours = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(made(exact()).text().decode())
    }
    assert {name for name in ours if "probes" not in name and "transitions" not in name} <= known


def test_buckets_are_those_of_the_catalogue() -> None:
    found = samples(made(exact()))
    for series in series_of(RequestSeries):
        if series.kind is Kind.HISTOGRAM and series.labels[:3] == ("model", "backend", "profile"):
            bounds = {float(dict(labels)["le"]) for name, labels in found if name == f"{series.name}_bucket"} - {
                float("inf")
            }
            assert bounds == set(series.buckets)


@pytest.mark.parametrize("flag", [Flag.CLIENT_BLOCKED, Flag.BURST_START])
def test_a_stream_that_its_client_held_back_or_that_came_in_a_burst_stands_in_no_rate(flag: Flag) -> None:
    metrics = made(exact(flags=(flag,)))
    for name, _ in RATES:
        assert value(metrics, f"{name}_count", **LABELS) == 0.0
    assert value(metrics, "pacekeeper_rates_excluded_total", model="kimi-k2.5", backend="a", rate="decode") == 1.0
