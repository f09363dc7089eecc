"""The /metrics page: vLLM's families by their recorded names, from the engine's counters and what answers ended with.

Pure but for its own tallies.  Families that the simulator has nothing to tell of are there with zero, so that a
scraper finds the names it expects; each HELP line says that it is simulated.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.simulator.request import Counters, Timing

_LENGTHS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
_BATCHES: Final = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
_TTFT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
_GAPS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_SPANS: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0,
    7680.0,
)  # fmt: skip

_HISTOGRAMS: Final[Mapping[str, Sequence[float]]] = {
    "request_prompt_tokens": _LENGTHS,
    "request_generation_tokens": _LENGTHS,
    "iteration_tokens_total": _BATCHES,
    "request_max_num_generation_tokens": _LENGTHS,
    "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "request_params_max_tokens": _LENGTHS,
    "time_to_first_token_seconds": _TTFT,
    "inter_token_latency_seconds": _GAPS,
    "request_time_per_output_token_seconds": _GAPS,
    "e2e_request_latency_seconds": _SPANS,
    "request_queue_time_seconds": _SPANS,
    "request_inference_time_seconds": _SPANS,
    "request_prefill_time_seconds": _SPANS,
    "request_decode_time_seconds": _SPANS,
    "request_num_preemptions": (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
    "request_prefill_kv_computed_tokens": _LENGTHS,
}
_FINISHES: Final = ("stop", "length", "abort", "error", "repetition")
_CACHE_SOURCES: Final = ("device", "host", "p2p", "disk", "external_unspecified")
_ZERO_COUNTERS: Final = (
    "estimated_flops_per_gpu_total", "estimated_read_bytes_per_gpu_total", "estimated_write_bytes_per_gpu_total",
    "external_prefix_cache_queries_total", "external_prefix_cache_hits_total", "mm_cache_queries_total",
    "mm_cache_hits_total",
)  # fmt: skip


class Histogram:
    """One histogram; owner: the tallies."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value`` so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Tallies:
    """What ended answers leave for the page; owner: the face."""

    def __init__(self) -> None:
        self.histograms = {name: Histogram(bounds) for name, bounds in _HISTOGRAMS.items()}
        self.rejections = {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0}

    def asked(self, *, n: int) -> None:
        """Count a request that reached the engine."""
        self.histograms["request_params_n"].observe(n)

    def ended(self, timing: Timing, *, prompt_tokens: int, tokens: int, max_tokens: int) -> None:
        """Count a choice that came to its end."""
        see = self.histograms
        see["request_prompt_tokens"].observe(prompt_tokens)
        see["request_prefill_kv_computed_tokens"].observe(prompt_tokens - timing.cached_tokens)
        see["request_generation_tokens"].observe(tokens)
        see["request_max_num_generation_tokens"].observe(tokens)
        see["request_params_max_tokens"].observe(max_tokens)
        see["request_num_preemptions"].observe(timing.preemptions)
        if timing.scheduled_at is None or timing.first_token_at is None or timing.last_token_at is None:
            return
        see["time_to_first_token_seconds"].observe(timing.first_token_at - timing.queued_at)
        see["request_queue_time_seconds"].observe(timing.scheduled_at - timing.queued_at)
        see["request_prefill_time_seconds"].observe(timing.first_token_at - timing.scheduled_at)
        see["request_inference_time_seconds"].observe(timing.last_token_at - timing.scheduled_at)
        see["e2e_request_latency_seconds"].observe(timing.last_token_at - timing.queued_at)
        decode_s = timing.last_token_at - timing.first_token_at
        see["request_decode_time_seconds"].observe(decode_s)
        if tokens > 1:
            see["request_time_per_output_token_seconds"].observe(decode_s / (tokens - 1))

    def paced(self, counters: Counters) -> None:
        """Count the gaps between tokens since this was last called: those of open answers count as they come."""
        gaps = self.histograms["inter_token_latency_seconds"]
        count = counters.inter_token_count - sum(gaps.counts)
        if count > 0:
            gaps.observe((counters.inter_token_sum_s - gaps.total) / count, count)


class Page:
    """Writes one page; ``created`` is the Unix time of the start, which vLLM repeats for each counter."""

    def __init__(self, model: str, *, created: float) -> None:
        self._labels = f'engine="0",model_name="{model}"'
        self._model = model
        self._created = created
        self._lines: list[str] = []

    def render(self, counters: Counters, tallies: Tallies) -> bytes:
        """Return the page."""
        tallies.paced(counters)
        self._lines = []
        self._gauges(counters)
        self._counters(counters, tallies)
        for name, histogram in tallies.histograms.items():
            self._histogram(name, histogram)
        self._family("cache_config_info", "gauge", {f'block_size="16",cache_dtype="auto",{self._labels}': 1.0})
        self._tool_parser()
        return "\n".join([*self._lines, ""]).encode()

    def _family(self, name: str, kind: str, values: Mapping[str, float]) -> None:
        full = f"vllm:{name}"
        self._lines += [f"# HELP {full} {name}, simulated.", f"# TYPE {full} {kind}"]
        self._lines += [f"{full}{{{labels}}} {float(value)}" for labels, value in values.items()]
        if kind == "counter":
            made = f"{full.removesuffix('_total')}_created"
            self._lines += [f"# HELP {made} {name}, simulated.", f"# TYPE {made} gauge"]
            self._lines += [f"{made}{{{labels}}} {self._created}" for labels in values]

    def _plain(self, name: str, kind: str, value: float) -> None:
        self._family(name, kind, {self._labels: value})

    def _with(self, label: str, values: Mapping[str, float]) -> dict[str, float]:
        labels = {"engine": "0", "model_name": self._model}
        return {_labels(labels | {label: name}): value for name, value in values.items()}

    def _gauges(self, counters: Counters) -> None:
        self._plain("num_requests_running", "gauge", counters.running)
        self._plain("num_requests_waiting", "gauge", counters.waiting)
        waiting = {"capacity": float(counters.waiting), "deferred": 0.0}
        self._family("num_requests_waiting_by_reason", "gauge", self._with("reason", waiting))
        states = {"awake": 1.0, "weights_offloaded": 0.0, "discard_all": 0.0}
        self._family("engine_sleep_state", "gauge", self._with("sleep_state", states))
        self._plain("kv_cache_usage_perc", "gauge", counters.kv_cache_usage)

    def _counters(self, counters: Counters, tallies: Tallies) -> None:
        for name in _ZERO_COUNTERS:
            self._plain(name, "counter", 0.0)
        self._plain("prefix_cache_queries_total", "counter", counters.prefix_queries_total)
        self._plain("prefix_cache_hits_total", "counter", counters.prefix_hits_total)
        self._plain("num_preemptions_total", "counter", counters.preemptions_total)
        self._plain("prompt_tokens_total", "counter", counters.prompt_tokens_total)
        hits = counters.prefix_hits_total
        self._plain("prompt_tokens_cached_total", "counter", hits)
        computed = counters.prompt_tokens_total - hits
        sources = {"local_compute": computed, "local_cache_hit": hits, "external_kv_transfer": 0.0}
        self._family("prompt_tokens_by_source_total", "counter", self._with("source", sources))
        cached = dict.fromkeys(_CACHE_SOURCES, 0.0) | {"device": hits}
        self._family("prompt_tokens_cached_by_source_total", "counter", self._with("source", cached))
        self._plain("generation_tokens_total", "counter", counters.generation_tokens_total)
        finished = {reason: counters.finished.get(reason, 0) for reason in _FINISHES}
        # A call of a tool is a stop to the engine: only the front end knows better.
        finished["stop"] += counters.finished.get("tool_calls", 0)
        self._family("request_success_total", "counter", self._with("finished_reason", finished))
        rejections = {
            f'model_name="{self._model}",reason="{reason}"': float(count)
            for reason, count in tallies.rejections.items()
        }
        self._family("admission_rejections_total", "counter", rejections)
        if counters.drafts_total:
            self._plain("spec_decode_num_drafts_total", "counter", counters.drafts_total)
            self._plain("spec_decode_num_draft_tokens_total", "counter", counters.draft_tokens_total)
            self._plain("spec_decode_num_accepted_tokens_total", "counter", counters.accepted_tokens_total)

    def _histogram(self, name: str, histogram: Histogram) -> None:
        full = f"vllm:{name}"
        self._lines += [f"# HELP {full} {name}, simulated.", f"# TYPE {full} histogram"]
        seen = 0
        for bound, count in zip([*map(str, histogram.bounds), "+Inf"], histogram.counts, strict=True):
            seen += count
            self._lines.append(f'{full}_bucket{{engine="0",le="{bound}",model_name="{self._model}"}} {float(seen)}')
        self._lines += [
            f"{full}_count{{{self._labels}}} {float(seen)}",
            f"{full}_sum{{{self._labels}}} {histogram.total}",
            f"# HELP {full}_created {name}, simulated.",
            f"# TYPE {full}_created gauge",
            f"{full}_created{{{self._labels}}} {self._created}",
        ]

    def _tool_parser(self) -> None:
        values = {
            f'mode="{mode}",model_name="{self._model}",outcome="{outcome}",request_type="{kind}"': 0.0
            for mode in ("streaming", "non_streaming")
            for outcome in ("tool_call", "no_tool_call")
            for kind in ("chat_completions", "responses", "other")
        }
        self._family("tool_call_parser_invocations_total", "counter", values)


def _labels(labels: Mapping[str, str]) -> str:
    """Labels in the order of their names, as vLLM has them."""
    return ",".join(f'{name}="{labels[name]}"' for name in sorted(labels))
