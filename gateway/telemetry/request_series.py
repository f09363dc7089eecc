"""The catalogue of metrics about requests: how they ended, how long they took, how fast tokens came.

Counted from the workers' heartbeats (exact) and from settled records (best effort), as each entry says.
"""

from __future__ import annotations

from typing import Final

from gateway.telemetry.series import Kind, Series

_WAITS: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
_RATES: Final = (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 100.0, 125.0, 160.0, 200.0, 300.0)
_GAPS: Final = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5, 10.0, 60.0)
_OWN_SHARE: Final = (0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)
_SKEWS: Final = (0.5, 0.8, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 1.0, 1.01, 1.02, 1.04, 1.06, 1.08, 1.1, 1.25, 2.0)
_QUEUES: Final = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 600.0)
_LENGTHS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1800.0, 3600.0)

_WHY_WAITS: Final = (
    "From a cached prompt on a fast engine (tens of ms) to a long queue (minutes), close together around the second "
    "where a person begins to wait."
)
_WHY_RATES: Final = (
    "From a crawl to the fastest single streams; steps of 10 around 40-80 tok/s, where a drop of a quarter is felt and "
    "must move a median to another bucket."
)

_ANSWER: Final = ("model", "backend", "profile")


class RequestSeries:
    """Metrics about requests, by attribute."""

    requests = Series(
        name="pacekeeper_requests_total",
        kind=Kind.COUNTER,
        help="Requests that ended, by outcome and class of status; exact: from the workers' own counters.",
        labels=("endpoint", "model", "backend", "outcome", "status"),
    )
    duration = Series(
        name="pacekeeper_request_duration_seconds",
        kind=Kind.HISTOGRAM,
        help="Accepted to ended.",
        labels=("endpoint", "model", "backend", "outcome"),
        buckets=_LENGTHS,
        why="Doubling from a short tool call to an hour: lengths of answers differ by orders of magnitude.",
    )
    ttft = Series(
        name="pacekeeper_time_to_first_token_seconds",
        kind=Kind.HISTOGRAM,
        help="Accepted to the first token of a stream, thought or visible.",
        labels=_ANSWER,
        buckets=_WAITS,
        why=_WHY_WAITS,
    )
    ttfv = Series(
        name="pacekeeper_time_to_first_visible_seconds",
        kind=Kind.HISTOGRAM,
        help="Accepted to the first visible token of a stream.",
        labels=_ANSWER,
        buckets=_WAITS,
        why=_WHY_WAITS,
    )
    decode_rate = Series(
        name="pacekeeper_decode_tokens_per_second",
        kind=Kind.HISTOGRAM,
        help="(completion tokens - 1) / decode window of each stream of one choice; exact counts only.",
        labels=_ANSWER,
        buckets=_RATES,
        why=_WHY_RATES,
    )
    reasoning_rate = Series(
        name="pacekeeper_reasoning_tokens_per_second",
        kind=Kind.HISTOGRAM,
        help="Reasoning tokens / time in which they came; exact counts only.",
        labels=_ANSWER,
        buckets=_RATES,
        why=_WHY_RATES,
    )
    visible_rate = Series(
        name="pacekeeper_visible_tokens_per_second",
        kind=Kind.HISTOGRAM,
        help="Content tokens / time in which they came; exact counts only.",
        labels=_ANSWER,
        buckets=_RATES,
        why=_WHY_RATES,
    )
    effective_visible_rate = Series(
        name="pacekeeper_effective_visible_tokens_per_second",
        kind=Kind.HISTOGRAM,
        help="Content tokens / decode window: what a person feels when reasoning is hidden; exact counts only.",
        labels=_ANSWER,
        buckets=_RATES,
        why=_WHY_RATES,
    )
    rates_excluded = Series(
        name="pacekeeper_rates_excluded_total",
        kind=Kind.COUNTER,
        help="Rates that are estimates (from the length of text), of several choices at once or of a client that held the "
        "answer back, and so stand in no histogram.",
        labels=("model", "backend", "rate"),
    )
    decode_skew = Series(
        name="pacekeeper_decode_skew_ratio",
        kind=Kind.HISTOGRAM,
        help="Our decode rate / the engine's own (1000 / mean ITL in ms) of each stream of one choice, where the engine "
        "tells it (--enable-per-request-metrics) and counted the tokens. 1: both agree.",
        labels=("model", "backend"),
        buckets=_SKEWS,
        why="Both time the same steps, so they agree within a few percent: close together from 0.9 to 1.1. Below, the way "
        "to the gateway costs pace; beyond either end one of the two is wrong.",
    )
    chunk_gap = Series(
        name="pacekeeper_chunk_gap_seconds",
        kind=Kind.HISTOGRAM,
        help="Of each stream the p50, p99 and max of the time between chunks. A chunk may hold several tokens.",
        labels=(*_ANSWER, "stat"),
        buckets=_GAPS,
        why="A step of the engine is 5-50 ms; above that a stutter is seen, above a second it is a stall.",
    )
    gateway_time = Series(
        name="pacekeeper_gateway_seconds",
        kind=Kind.HISTOGRAM,
        help="The gateway's own share: accepted to sent, less queue and body upload.",
        labels=("endpoint",),
        buckets=_OWN_SHARE,
        why="It is 0.1-1 ms when well; beyond 5 ms the gateway itself is in trouble.",
    )
    hold = Series(
        name="pacekeeper_hold_seconds",
        kind=Kind.HISTOGRAM,
        help="Of each stream the longest that bytes were held back for an event to become whole.",
        labels=("endpoint",),
        buckets=_OWN_SHARE,
        why="As for pacekeeper_gateway_seconds: whole events pass without waiting.",
    )
    queue_time = Series(
        name="pacekeeper_queue_seconds",
        kind=Kind.HISTOGRAM,
        help="Waiting for a place on a backend, of every request that got one; 0 without a bound.",
        labels=("pool",),
        buckets=_QUEUES,
        why="0 has a bucket of its own, so that who waited at all can be told; then from a blink to the longest wait.",
    )
    refusals = Series(
        name="pacekeeper_refusals_total",
        kind=Kind.COUNTER,
        help="Requests that were not let in, by the code of the error, or the limit of a key that was used up; exact: from "
        "the workers' own counters.",
        labels=("pool", "reason"),
    )
    key_requests = Series(
        name="pacekeeper_key_requests_total",
        kind=Kind.COUNTER,
        help="Requests by id of the client's key and outcome. From records, so lost records are missing.",
        labels=("key", "outcome"),
    )
    key_tokens = Series(
        name="pacekeeper_key_tokens_total",
        kind=Kind.COUNTER,
        help="Tokens of prompts and answers by id of the client's key, estimates among them. From records.",
        labels=("key", "kind"),
    )
    tokens = Series(
        name="pacekeeper_tokens_total",
        kind=Kind.COUNTER,
        help="Tokens as counted by engines: prompt, prompt_cached (part of prompt), reasoning, content, and undivided "
        "(generated, channel not known). From records, so lost records are missing.",
        labels=("model", "backend", "kind"),
    )
    estimated_tokens = Series(
        name="pacekeeper_estimated_tokens_total",
        kind=Kind.COUNTER,
        help="Generated tokens that no engine counted, estimated from the length of text.",
        labels=("model", "backend"),
    )
    records = Series(
        name="pacekeeper_records_total",
        kind=Kind.COUNTER,
        help="Records of settled requests that reached control.",
    )
    records_dropped = Series(
        name="pacekeeper_records_dropped_total",
        kind=Kind.COUNTER,
        help="Records that workers dropped because control was slow or away; their requests are in requests_total.",
    )
    tap_failures = Series(
        name="pacekeeper_tap_failures_total",
        kind=Kind.COUNTER,
        help="Streams whose measuring failed inside (a defect); the streams themselves were not touched.",
    )
