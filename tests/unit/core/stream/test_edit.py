"""Edits of a stream: what is meant is changed, everything else comes back byte for byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.stream.edit import (
    ReportAsEvent,
    ReportInUsage,
    Untouched,
    UsageStripped,
    event_data,
    is_usage,
    split_events,
    with_report_in_usage,
)
from gateway.core.stream.pace import PaceReport

DELTA = (
    b'data: {"id":"c-1","object":"o","created":5,"model":"m","choices":[{"delta":{"content":"\\"choices\\":[]"}}]}\n\n'
)
FINISH = b'data: {"id":"c-1","choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"id":"c-1","choices":[],"usage":{"completion_tokens":7},"system_fingerprint":"v-1"}\n\n'
DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
REPORT = PaceReport(request_id="r", decode_tps=80.0, flags=("tool_calls",))


def report() -> PaceReport:
    return REPORT


@pytest.mark.parametrize(
    "event",
    [
        DELTA,
        DONE,
        COMMENT,
        b'data: {"choices":[]}\n\n',
        b'data: {"choices":[],"usage":null}\n\n',
        b'data: {"choices":[{}],"usage":{"completion_tokens":7}}\n\n',
        b'data: {"choices":[]\n\n',
        b"\n\n",
    ],
)
def test_only_an_event_without_choices_and_with_usage_is_the_usage_event(event: bytes) -> None:
    assert not is_usage(event)


@pytest.mark.parametrize(
    "event", [USAGE, USAGE.replace(b"\n", b"\r\n"), b'data:{"choices": [],\ndata: "usage":{}}\n\n']
)
def test_the_usage_event_is_known_in_every_form(event: bytes) -> None:
    assert is_usage(event)


def test_stripping_takes_out_the_usage_event_alone() -> None:
    edit = UsageStripped()
    edit.begin(DELTA)
    assert edit.apply(DELTA + USAGE + COMMENT + DONE, report) == DELTA + COMMENT + DONE
    assert edit.held == b""


@pytest.mark.parametrize("reads", [[FINISH + USAGE + DONE], [FINISH, USAGE, DONE], [DELTA + FINISH, USAGE + DONE]])
def test_the_fingerprint_goes_back_to_the_event_that_would_have_had_it(reads: list[bytes]) -> None:
    edit = UsageStripped()
    out = b"".join(edit.apply(r, report) if edit.held or any(n in r for n in edit.needles) else r for r in reads)
    assert out.removeprefix(DELTA) == FINISH[:-3] + b',"system_fingerprint":"v-1"}\n\n' + DONE
    assert edit.held == b""


def test_a_backend_that_sends_no_usage_loses_nothing_by_the_waiting() -> None:
    edit = UsageStripped()
    assert edit.apply(DELTA + FINISH, report) == DELTA
    assert edit.held == FINISH
    assert edit.apply(DONE, report) == FINISH + DONE
    assert edit.apply(FINISH + COMMENT, report) == FINISH + COMMENT


def test_an_event_that_the_fingerprint_does_not_fit_stays_as_it_is() -> None:
    assert UsageStripped().apply(DELTA + USAGE, report) == DELTA
    assert UsageStripped().apply(USAGE, report) == b"", (
        "in a read of its own there is nothing to give its fingerprint to"
    )
    bare = USAGE.replace(b',"system_fingerprint":"v-1"', b"")
    assert UsageStripped().apply(FINISH + bare, report) == FINISH
    crlf = FINISH.replace(b"\n", b"\r\n")
    assert UsageStripped().apply(crlf + USAGE, report) == crlf


def test_untouched_changes_nothing() -> None:
    edit = Untouched()
    edit.begin(DELTA)
    assert edit.needles == ()
    assert edit.apply(DELTA + USAGE, report) == DELTA + USAGE


def test_the_report_goes_into_the_usage_object() -> None:
    edit = ReportInUsage()
    edit.begin(DELTA)
    out = edit.apply(DELTA + USAGE + DONE, report)
    assert out.startswith(DELTA)
    assert out.endswith(DONE)
    usage = json.loads(split_events(out)[1][6:])["usage"]
    assert usage == {
        "completion_tokens": 7,
        "pacekeeper": {"request_id": "r", "decode_tps": 80.0, "flags": ["tool_calls"]},
    }


@pytest.mark.parametrize("strip", [True, False])
def test_the_report_is_a_chunk_of_this_stream_before_the_marker(strip: bool) -> None:
    edit = ReportAsEvent(UsageStripped() if strip else Untouched())
    edit.begin(COMMENT + b"data: nonsense\n\n" + DELTA)
    events = split_events(edit.apply(DELTA + USAGE + DONE, report))
    assert events[0] == DELTA
    assert (USAGE in events) is not strip
    assert events[-1] == DONE
    added = json.loads(events[-2][6:])
    assert added == {
        "id": "c-1",
        "object": "o",
        "created": 5,
        "model": "m",
        "choices": [],
        "pacekeeper": {"request_id": "r", "decode_tps": 80.0, "flags": ["tool_calls"]},
    }


def test_a_report_as_event_has_a_valid_head_even_when_the_first_event_had_none() -> None:
    edit = ReportAsEvent(Untouched())
    edit.begin(COMMENT)
    assert json.loads(split_events(edit.apply(DONE, report))[0][6:])["object"] == "chat.completion.chunk"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"usage":null}', b'{"usage":[1]}', b"{"])
def test_a_body_without_usage_stays_as_it_is(body: bytes) -> None:
    assert with_report_in_usage(body, REPORT) == body


@given(events=st.lists(st.sampled_from([DELTA, USAGE, DONE, COMMENT, b"x\r\n\r\n", b"y\r\r"]), max_size=8))
def test_events_cut_apart_join_to_the_same_bytes(events: list[bytes]) -> None:
    assert split_events(b"".join(events)) == events


def test_thousands_of_events_in_one_read_are_cut_apart_in_one_pass() -> None:
    # Looking for every kind of blank line anew behind each event would take minutes: 60 s is all a test has.
    assert len(split_events(DELTA * 50_000)) == 50_000


DEEP = b'{"choices":[],"usage":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"


@pytest.mark.parametrize("edit", [UsageStripped(), ReportInUsage(), ReportAsEvent(Untouched())])
def test_an_event_nested_beyond_reason_goes_by_as_it_is(edit: UsageStripped | ReportInUsage | ReportAsEvent) -> None:
    event = b"data: " + DEEP + b"\n\n"
    edit.begin(event)
    assert edit.apply(event, report) == event
    assert with_report_in_usage(DEEP, REPORT) == DEEP


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"\r"])
def test_blank_lines_without_number_are_no_pieces(blank: bytes) -> None:
    many = blank * 1_000_000
    assert split_events(DELTA + many + USAGE + many + DONE) == [DELTA + many, USAGE + many, DONE]
    edit = UsageStripped()
    assert edit.apply(many + FINISH + many + USAGE + many + DONE, report) == many + FINISH + many + DONE


def test_the_numbers_of_one_read_are_made_once() -> None:
    made: list[PaceReport] = []

    def count() -> PaceReport:
        made.append(REPORT)
        return REPORT

    ReportInUsage().apply(USAGE * 100, count)
    ReportAsEvent(Untouched()).apply(DONE * 100, count)
    assert len(made) == 2


def test_an_unfinished_event_is_a_piece_of_its_own() -> None:
    assert split_events(DONE + b"data: x") == [DONE, b"data: x"]
    assert event_data(b"data: x") == b"x"
