"""How much is measured: rounds, windows and levels of a full and of a quick run. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkersLoad:
    """What each worker is given: chunks to keep it nearly busy, and more short requests than it can answer.

    Chunks are not offered beyond that: a worker that is late reads several at once, each of which then costs less, and
    the engines would be the limit long before it.
    """

    rounds: int = 3
    streams: int = 256
    pace_ms: float = 10.0
    tokens: int = 100
    connections: int = 32
    request_tokens: int = 16
    ramp_s: float = 1.5
    window_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a run; times in seconds, paces in milliseconds."""

    rounds: int = 5
    streams: int = 64
    pace_ms: float = 25.0
    grid_ms: float = 1.0
    """1: the streams' steps are spread over time. Equal to the pace: all streams step at once, as one batch does."""
    stream_window_s: float = 3.0
    connections: int = 32
    request_tokens: int = 16
    request_window_s: float = 1.5
    latency_levels: tuple[int, ...] = (1, 16, 64, 256)
    latency_rounds: int = 3
    latency_window_s: float = 1.5
    pace_pairs: int = 10
    pace_tokens: int = 80
    pace_step_ms: float = 12.5
    idle_streams: int = 1024
    scale_levels: tuple[int, ...] = (16, 1024)
    scale_pace_ms: float = 100.0
    scale_rounds: int = 2
    prompts: int = 30
    prompt_rounds: int = 2
    worker_counts: tuple[int, ...] = (1, 2, 4, 8)
    worker_load: WorkersLoad = WorkersLoad()
    unpinned: bool = False
    """Workers share cores where there are too few: to try the harness, not to measure."""
    include_usage: bool = False
    repeat_until_s: float = 400.0
    """Until then a cost window that other processes disturbed is measured a second time."""
    limit_s: float = 1200.0
    """No new part begins after this long; what is left out is written down."""


FULL = Plan()
QUICK = Plan(
    rounds=3,
    stream_window_s=1.5,
    request_window_s=0.8,
    latency_levels=(1, 64),
    latency_rounds=1,
    latency_window_s=1.0,
    pace_pairs=3,
    pace_tokens=50,
    scale_levels=(),
    idle_streams=256,
    prompts=10,
    prompt_rounds=1,
    worker_counts=(1, 2),
    worker_load=WorkersLoad(rounds=1, ramp_s=1.0, window_s=1.5),
    repeat_until_s=40.0,
    limit_s=170.0,
)
