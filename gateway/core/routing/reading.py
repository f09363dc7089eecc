"""What an engine's ``/metrics`` says: four numbers out of 50 KB of text, without parsing the rest.

Used by the probes.  Tolerant: a line that cannot be read is skipped, a number that is not there is None.  Several
engines behind one server (data parallel) are summed.  Must not judge what the numbers mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

GENERATION_TOKENS: Final = b"vllm:generation_tokens_total"
RUNNING: Final = b"vllm:num_requests_running"
WAITING: Final = b"vllm:num_requests_waiting"
DECODE_S: Final = b"vllm:inter_token_latency_seconds_sum"

_REST_OF_SAMPLE: Final = re.compile(rb'(?:\{(?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*\})?[ \t]+([^\s]+)')
"""After the name: labels, whose quoted values may hold braces, and the value; a timestamp may follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One reading at monotonic ``read_at``, the moment of asking.

    ``generation_tokens`` since the engine started, and ``decode_s``, the time between the tokens of each stream, summed
    over all streams; ``running`` and ``waiting`` requests, whoever sent them.
    """

    read_at: float
    generation_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    decode_s: float | None = None


def parse_metrics(page: bytes, *, read_at: float) -> EngineReading:
    """The reading in a page of Prometheus or OpenMetrics text."""
    return EngineReading(
        read_at=read_at,
        generation_tokens=_sum_of(page, GENERATION_TOKENS),
        running=_sum_of(page, RUNNING),
        waiting=_sum_of(page, WAITING),
        decode_s=_sum_of(page, DECODE_S),
    )


def generation_tps(before: EngineReading | None, after: EngineReading) -> float | None:
    """Tokens per second of the whole engine between two readings; None where that cannot be said."""
    if before is None or before.generation_tokens is None or after.generation_tokens is None:
        return None
    span_s = after.read_at - before.read_at
    gained = after.generation_tokens - before.generation_tokens
    return gained / span_s if span_s > 0 and gained >= 0 else None


def has_restarted(before: EngineReading | None, after: EngineReading) -> bool:
    """Whether the counter fell, which it does only in a new process."""
    if before is None or before.generation_tokens is None or after.generation_tokens is None:
        return False
    return after.generation_tokens < before.generation_tokens


def _sum_of(page: bytes, name: bytes) -> float | None:
    total: float | None = None
    for end in _ends_of(page, name):
        if (sample := _REST_OF_SAMPLE.match(page, end)) and (value := _number(sample.group(1))) is not None:
            total = value if total is None else total + value
    return total


def _ends_of(page: bytes, name: bytes) -> Iterator[int]:
    """Where ``name`` ends, each time it begins a line."""
    at = page.find(name)
    while at >= 0:
        end = at + len(name)
        if at == 0 or page[at - 1] == ord("\n"):
            yield end
        at = page.find(name, end)


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
