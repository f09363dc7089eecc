"""The numbers that a client gets: durations from its own request, unknown ones left out."""

from __future__ import annotations

import json

import msgspec

from gateway.core.stream.pace import pace_report
from gateway.core.stream.summary import Flag, StreamSummary


def test_durations_count_from_the_request_and_are_short() -> None:
    summary = StreamSummary(
        first_token=100.25,
        first_visible=101.5,
        decode_tps=80.123456789,
        completion_tokens=512,
        flags=(Flag.TOOL_CALLS,),
    )
    report = pace_report(summary, request_id="r", accepted=100.0, queue_s=0.0)
    assert json.loads(msgspec.json.encode(report)) == {
        "request_id": "r",
        "queue_s": 0.0,
        "ttft_s": 0.25,
        "ttfv_s": 1.5,
        "decode_tps": 80.123457,
        "completion_tokens": 512,
        "flags": ["tool_calls"],
    }


def test_what_is_not_known_is_left_out() -> None:
    report = pace_report(StreamSummary(), request_id="r", accepted=100.0, queue_s=None)
    assert json.loads(msgspec.json.encode(report)) == {"request_id": "r"}
