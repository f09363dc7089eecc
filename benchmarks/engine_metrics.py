"""The `/metrics` page of the mock engine: vLLM's names, and as many lines as a real vLLM shows.

A gateway that scrapes its engines pays for the length of the page, so the page has the size of a real one
(about 54 KB), though only a few of its figures are alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.vllm_bytes import MODEL

_LABELS = f'engine="0",model_name="{MODEL}"'
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0)
_QUIET_HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "request_max_num_generation_tokens",
    "request_params_n",
    "request_params_max_tokens",
    "request_prefill_kv_computed_tokens",
)
_QUIET_ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/version", "/metrics")


@dataclass(slots=True)
class EngineCounters:
    """What the mock engine counts; owned and changed by the engine only."""

    running: int = 0
    generation_tokens: int = 0
    prompt_tokens: int = 0
    finished: int = 0
    aborted: int = 0


def _alive(counters: EngineCounters) -> Iterator[str]:
    gauges = {"num_requests_running": counters.running, "num_requests_waiting": 0, "kv_cache_usage_perc": 0}
    for name, value in gauges.items():
        yield f"# HELP vllm:{name} Live figure of the engine."
        yield f"# TYPE vllm:{name} gauge"
        yield f"vllm:{name}{{{_LABELS}}} {float(value)}"
    totals = {"generation_tokens": counters.generation_tokens, "prompt_tokens": counters.prompt_tokens}
    for name, value in totals.items():
        yield f"# HELP vllm:{name}_total Number of tokens processed."
        yield f"# TYPE vllm:{name}_total counter"
        yield f"vllm:{name}_total{{{_LABELS}}} {float(value)}"
    yield "# HELP vllm:num_preemptions_total Cumulative number of preemptions."
    yield "# TYPE vllm:num_preemptions_total counter"
    yield f"vllm:num_preemptions_total{{{_LABELS}}} 0.0"
    yield "# HELP vllm:request_success_total Count of successfully processed requests."
    yield "# TYPE vllm:request_success_total counter"
    for reason, count in {"stop": counters.finished, "length": 0, "abort": counters.aborted, "error": 0}.items():
        yield f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="{MODEL}"}} {float(count)}'


def _histogram(name: str, labels: str) -> Iterator[str]:
    for bound in (*_BOUNDS, "+Inf"):
        yield f'{name}_bucket{{le="{bound}",{labels}}} 0.0'
    yield f"{name}_count{{{labels}}} 0.0"
    yield f"{name}_sum{{{labels}}} 0.0"


def _quiet() -> Iterator[str]:
    for short_name in _QUIET_HISTOGRAMS:
        name = f"vllm:{short_name}"
        yield f"# HELP {name} Histogram that the mock engine does not fill."
        yield f"# TYPE {name} histogram"
        yield from _histogram(name, _LABELS)
    yield "# HELP http_request_duration_seconds Histogram that the mock engine does not fill."
    yield "# TYPE http_request_duration_seconds histogram"
    for route in _QUIET_ROUTES:
        for method in ("GET", "POST"):
            yield from _histogram("http_request_duration_seconds", f'handler="{route}",method="{method}"')


def quiet_page() -> str:
    """The part of the page that never changes."""
    return "\n".join(_quiet()) + "\n"


def metrics_page(counters: EngineCounters, quiet: str) -> bytes:
    """The whole page in Prometheus text format; `quiet` is `quiet_page()`, rendered once."""
    return ("\n".join(_alive(counters)) + "\n" + quiet).encode()
