"""The ``pacekeeper`` object that a client gets when it asked for its own numbers (``X-Gateway-Metrics``).

Station relay.  The field names are a contract with clients; ``docs/clients.md`` says what each means.
Rates are tokens per second, durations seconds from the moment that the request had come in.
"""

from __future__ import annotations

import msgspec

from gateway.core.stream.summary import StreamSummary


class PaceReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is left out is not known; ``flags`` say why, or what bends the numbers."""

    request_id: str
    queue_s: float | None = None
    ttft_s: float | None = None
    ttfv_s: float | None = None
    decode_tps: float | None = None
    reasoning_tps: float | None = None
    visible_tps: float | None = None
    effective_visible_tps: float | None = None
    reasoning_share: float | None = None
    step_time_s: float | None = None
    chunk_gap_p50_s: float | None = None
    chunk_gap_p99_s: float | None = None
    chunk_gap_max_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    content_tokens: int | None = None
    flags: tuple[str, ...] = ()


def pace_report(summary: StreamSummary, *, request_id: str, accepted: float, queue_s: float | None) -> PaceReport:
    """The report of one answer; ``accepted`` is the monotonic instant that durations count from."""
    return PaceReport(
        request_id=request_id,
        queue_s=_short(queue_s),
        ttft_s=_since(summary.first_token, accepted),
        ttfv_s=_since(summary.first_visible, accepted),
        decode_tps=_short(summary.decode_tps),
        reasoning_tps=_short(summary.reasoning_tps),
        visible_tps=_short(summary.visible_tps),
        effective_visible_tps=_short(summary.effective_visible_tps),
        reasoning_share=_short(summary.reasoning_share),
        step_time_s=_short(summary.step_time_s),
        chunk_gap_p50_s=_short(summary.gap_p50_s),
        chunk_gap_p99_s=_short(summary.gap_p99_s),
        chunk_gap_max_s=_short(summary.gap_max_s),
        prompt_tokens=summary.prompt_tokens,
        completion_tokens=summary.completion_tokens,
        reasoning_tokens=summary.reasoning_tokens,
        content_tokens=summary.content_tokens,
        flags=tuple(flag.value for flag in summary.flags),
    )


def _since(instant: float | None, accepted: float) -> float | None:
    return None if instant is None else _short(instant - accepted)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
