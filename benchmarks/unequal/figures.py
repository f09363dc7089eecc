"""What is said of one window, defined before anything was measured. Pure.

``answer``: over the answers that ended in the window, each counted once, by the decode rate in its record. A fast
engine ends more answers, so this shows the fast engine more than it shows where streams are.
``moment``: the same answers, each counted for as long as it was decoded: what a look at all open streams at any moment
finds. Its mean is what a client gets that asks again and again. Where half of the streams are at one engine and half at
another, the median is either one's rate, as it happens; the mean of the middle fifth (``mid``) lies between them.
All times and rates are on the engines' clock, whatever the speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from benchmarks.figures import percentile


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One window of one policy, scene and load; rates in tokens per second of one stream, but for ``total_tps``."""

    answers: int
    answer_p50_tps: float
    answer_p10_tps: float
    moment_p50_tps: float
    moment_p10_tps: float
    moment_mid_tps: float
    moment_mean_tps: float
    total_tps: float
    ttft_p50_s: float
    ttft_p95_s: float
    shares: dict[str, float]
    """Of the answers, by backend."""


def weighted(values: Iterable[tuple[float, float]], share: float) -> float:
    """The smallest value at or below which ``share`` of the weights lie; pairs are (value, weight). Not of nothing."""
    ordered = sorted(values)
    wanted = share * sum(weight for _, weight in ordered)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= wanted - 1e-9:
            return value
    raise ValueError("no values")


def middle(values: Iterable[tuple[float, float]], low: float, high: float) -> float:
    """The mean of what lies between two shares of the weights; pairs are (value, weight). Not of nothing."""
    ordered = sorted(values)
    total = sum(weight for _, weight in ordered)
    reached = found = 0.0
    for value, weight in ordered:
        found += value * max(0.0, min(reached + weight, high * total) - max(reached, low * total))
        reached += weight
    return found / (total * (high - low))


def figures(records: Sequence[Mapping[str, Any]], *, generated: float, window_s: float, speed: float) -> Figures:
    """Of the records of the answers that ended in a window of wall time; ``generated`` tokens, by the engines' count.

    Raises AssertionError for an answer that was not good.
    """
    if bad := [it for it in records if it["outcome"] != "ok"]:
        raise AssertionError(f"{len(bad)} of {len(records)} answers were not good: {bad[0]}")
    made = [it for it in records if it["summary"].get("decode_tps")]
    rates = [it["summary"]["decode_tps"] / speed for it in made]
    spans_s = [it["summary"]["completion_tokens"] / rate for it, rate in zip(made, rates, strict=True)]
    moments = list(zip(rates, spans_s, strict=True))
    firsts_s = [it["ttft_s"] * speed for it in records if it.get("ttft_s") is not None]
    begun = Counter(it["backend"] for it in records)
    return Figures(
        answers=len(records),
        answer_p50_tps=percentile(rates, 0.5) or 0.0,
        answer_p10_tps=percentile(rates, 0.1) or 0.0,
        moment_p50_tps=weighted(moments, 0.5),
        moment_p10_tps=weighted(moments, 0.1),
        moment_mid_tps=middle(moments, 0.4, 0.6),
        moment_mean_tps=sum(rate * span_s for rate, span_s in moments) / sum(spans_s),
        total_tps=generated / window_s / speed,
        ttft_p50_s=percentile(firsts_s, 0.5) or 0.0,
        ttft_p95_s=percentile(firsts_s, 0.95) or 0.0,
        shares={name: count / len(records) for name, count in sorted(begun.items())},
    )
