"""The numbers in the usage of Responses and Messages streams; nothing else is touched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.stream.edit import ReportInUsage, event_data
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.summary import Dialect
from gateway.core.stream.typed_report import report_in_usage
from tests.fakes.engine_events import typed

REPORT = PaceReport(request_id="r", decode_tps=80.0)
PACE = {"request_id": "r", "decode_tps": 80.0}


def edited(dialect: Dialect, *events: bytes) -> bytes:
    edit = report_in_usage(dialect)
    edit.begin(events[0])
    assert edit.held == b""
    return edit.apply(b"".join(events), lambda: REPORT)


def data_of(event: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(event_data(event))
    return value


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete"])
def test_the_end_of_a_response_carries_the_report(kind: str) -> None:
    delta = typed("response.output_text.delta", delta='event: response.completed "usage":{}')
    end = typed(kind, response={"id": "resp_1", "usage": {"output_tokens": 5}, "output": [1, 2.50]}, sequence_number=9)
    out = edited(Dialect.RESPONSES, delta, end)
    assert out.startswith(delta + b"event: " + kind.encode() + b"\ndata: {")
    told = data_of(out[len(delta) :])
    assert told["response"] == {"id": "resp_1", "usage": {"output_tokens": 5, "pacekeeper": PACE}, "output": [1, 2.5]}
    assert (told["type"], told["sequence_number"]) == (kind, 9)


def test_the_last_delta_of_a_message_carries_the_report() -> None:
    end = typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5})
    stop = typed("message_stop")
    out = edited(Dialect.MESSAGES, end, stop)
    assert out.endswith(stop)
    assert data_of(out[: -len(stop)])["usage"] == {"output_tokens": 5, "pacekeeper": PACE}


@pytest.mark.parametrize(
    "event",
    [
        typed("response.completed", response={"usage": None}),
        typed("response.completed", response=None),
        typed("response.completed"),
        b"event: response.completed\ndata: {broken\n\n",
        b": comment\n\n",
    ],
)
def test_what_has_no_usage_means_the_same_as_before(event: bytes) -> None:
    out = edited(Dialect.RESPONSES, event)
    assert out == event or data_of(out) == data_of(event)


def test_other_dialects_have_the_edit_of_chat() -> None:
    assert isinstance(report_in_usage(Dialect.CHAT), ReportInUsage)
    assert isinstance(report_in_usage(Dialect.TRANSCRIPTION), ReportInUsage)
