"""Settled requests for tests: records with plausible numbers, made one by one."""

from __future__ import annotations

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Ending, Exactness, Outcome, StreamSummary


def record_of(
    request_id: str = "req-1",
    *,
    accepted_wall: float = 1_700_000_000.0,
    model: str = "kimi-k2.5",
    backend: str = "a",
    outcome: Outcome = Outcome.OK,
    total_s: float = 6.5,
) -> RequestRecord:
    """A streamed chat answer of 512 tokens, half of them reasoning, at 80 tokens per second."""
    return RequestRecord(
        request_id=request_id,
        slot=0,
        accepted_wall=accepted_wall,
        endpoint="chat",
        method="POST",
        status=200,
        outcome=outcome,
        ending=Ending.COMPLETE,
        stream=True,
        model=model,
        pool="kimi",
        backend=backend,
        profile="stock",
        attempts=1,
        ttft_s=0.1,
        ttfv_s=3.3,
        total_s=total_s,
        gateway_s=0.0004,
        summary=StreamSummary(
            events=514,
            chunks=512,
            choices=1,
            prompt_tokens=123,
            completion_tokens=512,
            reasoning_tokens=256,
            content_tokens=256,
            total_exactness=Exactness.EXACT,
            decode_tps=80.0,
            reasoning_tps=80.0,
            visible_tps=80.0,
            effective_visible_tps=40.0,
            finish_reasons=("stop",),
            done_marker=True,
            terminal=True,
        ),
    )
