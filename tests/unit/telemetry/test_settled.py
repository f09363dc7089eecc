"""The wide event of a settled request has exactly the fields of its catalogue, and no text."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Ending, EngineError, EngineMetrics, Exactness, Flag, Outcome, StreamSummary
from gateway.telemetry.settled import SETTLED_FIELDS, settled_event
from tests.fakes.settled import record_of


def told(record: RequestRecord) -> dict[str, object]:
    """The event as a reader of the log gets it, numbers without measure included."""
    return msgspec.to_builtins(settled_event(record))


LEAST = RequestRecord(
    request_id="r1",
    slot=0,
    accepted_wall=1.0,
    endpoint="chat",
    method="POST",
    status=429,
    outcome=Outcome.REJECTED,
    ending=Ending.REJECTED,
)


def filled(kind: type[msgspec.Struct], **given: object) -> msgspec.Struct:
    """An instance with a value in every field."""
    values = {name: "x" if name in {"code", "type"} else 1.5 for name in kind.__struct_fields__}
    return kind(**values | given)


def full_record() -> RequestRecord:
    engine = filled(EngineMetrics)
    error = filled(EngineError)
    summary = filled(
        StreamSummary,
        window_start=10.0,
        window_end=16.4,
        total_exactness=Exactness.EXACT,
        engine=engine,
        error=error,
        finish_reasons=("stop",),
        flags=(Flag.TOOL_CALLS,),
    )
    text = dict.fromkeys(("model", "pool", "backend", "profile", "key_id", "error_code", "error_reason"), "x")
    optional = dict.fromkeys(
        ("queue_s", "upload_s", "sent_s", "headers_s", "ttft_s", "ttfv_s", "last_token_s", "gateway_s"), 0.25
    )
    return msgspec.structs.replace(LEAST, summary=summary, **text, **optional)


def test_a_record_with_everything_makes_exactly_the_fields_of_the_catalogue() -> None:
    assert set(told(full_record())) == set(SETTLED_FIELDS)


def test_every_field_of_record_and_summary_is_in_the_catalogue_or_an_instant() -> None:
    instants = {"first_event", "first_token", "first_visible", "last_token", "window_start", "window_end"}
    parts = {"summary", "engine", "error"}
    known = set(SETTLED_FIELDS) | instants | parts
    fields = {*RequestRecord.__struct_fields__, *StreamSummary.__struct_fields__}
    assert fields - known == set()


def test_what_is_not_known_is_left_out_and_zero_is_told() -> None:
    event = told(LEAST)
    assert "ttft_s" not in event
    assert "model" not in event
    assert (event["slot"], event["stream"], event["blocked_s"]) == (0, False, 0.0)


def test_times_are_told_to_the_microsecond() -> None:
    assert told(msgspec.structs.replace(LEAST, ttft_s=0.1234567891))["ttft_s"] == 0.123457


@given(st.floats(min_value=0, max_value=4e9))
def test_times_are_rounded_to_the_nearest_microsecond(value: float) -> None:
    found = told(msgspec.structs.replace(LEAST, ttft_s=value))["ttft_s"]
    assert found == pytest.approx(round(value, 6), abs=1.01e-6 if value < 1e3 else value * 1e-12)
    assert len(repr(found).partition(".")[2]) <= 7


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e308])
def test_a_number_without_measure_is_told_as_it_is_and_the_rest_as_ever(value: float) -> None:
    engine = EngineMetrics(mean_itl_ms=value, queue_time_ms=0.12345678)
    record = msgspec.structs.replace(LEAST, model="m" * 300, summary=StreamSummary(engine=engine))
    event = told(record)
    assert event["engine_mean_itl_ms"] == pytest.approx(value, nan_ok=True)
    assert event["engine_queue_time_ms"] == 0.123457
    assert "engine_spec_tokens" not in event


def test_the_decode_window_is_told_as_a_duration() -> None:
    assert told(full_record())["decode_window_s"] == 6.4
    without_end = msgspec.structs.replace(LEAST, summary=StreamSummary(window_start=1.0))
    assert "decode_window_s" not in told(without_end)


def test_what_the_engine_says_of_the_rate_is_compared_with_ours() -> None:
    engine = EngineMetrics(mean_itl_ms=12.5)
    summary = StreamSummary(decode_tps=78.4, total_exactness=Exactness.EXACT, engine=engine)
    assert told(msgspec.structs.replace(LEAST, summary=summary))["decode_skew"] == 0.98
    unknown = msgspec.structs.replace(summary, total_exactness=Exactness.ESTIMATED)
    assert "decode_skew" not in told(msgspec.structs.replace(LEAST, summary=unknown))


def test_text_that_a_client_chose_is_cut() -> None:
    assert len(str(told(msgspec.structs.replace(LEAST, model="m" * 100_000))["model"])) == 256


@pytest.mark.parametrize("record", [record_of(), full_record(), LEAST], ids=["usual", "full", "least"])
def test_the_event_is_plain_json(record: RequestRecord) -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(told(record)))
    assert decoded["outcome"] == record.outcome.value
