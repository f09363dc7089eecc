"""Reasoning left out of a stream of Responses, by hand-made events; the recordings are a property test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.stream.delivery.frame import FIELDS
from gateway.core.stream.delivery.numbering import _MOST, Numbering
from gateway.core.stream.delivery.responses import ResponsesDelivery, reasoning_of, without_reasoning
from tests.fakes.delivered import Taken, payloads
from tests.fakes.engine_events import typed

SUMMARY = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "content": None}
LONG = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "long"}, {"type": "x"}]}
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "so"}]}
CALL = {"type": "function_call", "arguments": "{}"}


def run(*events: bytes) -> tuple[list[Any], Taken]:
    taken = Taken()
    delivery = ResponsesDelivery(taken)
    delivery.begin(b"")
    return [value for _, value in payloads(b"".join(map(delivery.event, events)))], taken


def test_items_after_reasoning_move_up_also_when_they_overlap() -> None:
    values, taken = run(
        typed("response.output_item.added", output_index=0, sequence_number=0, item=CALL),
        typed("response.output_item.added", output_index=1, sequence_number=1, item=SUMMARY),
        typed("response.reasoning_summary_text.delta", output_index=1, sequence_number=2, delta="short"),
        typed("response.output_item.added", output_index=2, sequence_number=3, item=MESSAGE),
        typed("response.output_item.done", output_index=0, sequence_number=4, item=CALL),
        typed("response.output_item.done", output_index=1, sequence_number=5, item=SUMMARY),
        typed("response.output_text.delta", output_index=2, sequence_number=6, delta="so"),
        typed(
            "response.completed", sequence_number=7, response={"id": "r", "output": [CALL, SUMMARY, MESSAGE], "x": 1}
        ),
    )
    assert [
        (it["type"].rpartition("response.")[2], it.get("output_index"), it["sequence_number"]) for it in values
    ] == [
        ("output_item.added", 0, 0),
        ("output_item.added", 1, 1),
        ("output_item.done", 0, 2),
        ("output_text.delta", 1, 3),
        ("completed", None, 4),
    ]
    assert values[-1]["response"] == {"id": "r", "output": [CALL, MESSAGE], "x": 1}
    assert taken.texts == {0: "short"}


def test_reasoning_without_an_item_that_was_begun_is_left_out_too() -> None:
    values, taken = run(
        typed("response.reasoning_text.delta", output_index=0, sequence_number=0, delta=""),
        typed("response.output_item.done", sequence_number=1, item=LONG),
        typed("response.output_text.delta", output_index=0, sequence_number=2, delta="so"),
    )
    assert [(it["output_index"], it["sequence_number"]) for it in values] == [(0, 0)]
    assert taken.texts == {}


@pytest.mark.parametrize(
    "event",
    [
        typed("response.created", sequence_number=0, response={"reasoning": {"effort": "low"}, "output": []}),
        typed("response.completed", sequence_number=0, response={"reasoning": None, "output": [MESSAGE]}),
        typed("response.output_text.delta", output_index=0, sequence_number=0, delta="reasoning"),
        typed("error", message="reasoning"),
        b"data: reasoning\n\n",
        b": reasoning\n\n",
        b'data: {"type":"response.completed","response":{"output":[1],"x":"reasoning"}}\n\n',
    ],
)
def test_what_has_no_reasoning_in_it_comes_as_it_is(event: bytes) -> None:
    assert ResponsesDelivery(Taken()).event(event) == event


def test_a_response_loses_its_items_and_the_engine_s_own_record_of_them() -> None:
    body = FIELDS.decode(
        json.dumps({"output": [LONG, MESSAGE, SUMMARY], "output_messages": [1], "status": "x"}).encode()
    )
    assert reasoning_of(body) == [b"long", b"short"]
    assert json.loads(json.dumps({k: json.loads(bytes(v)) for k, v in without_reasoning(body).items()})) == {
        "output": [MESSAGE],
        "output_messages": None,
        "status": "x",
    }
    bare = FIELDS.decode(b'{"output":null}')
    assert without_reasoning(bare) is bare
    assert reasoning_of(bare) == []


def test_items_are_numbered_anew_whatever_order_they_are_left_out_in() -> None:
    numbering = Numbering()
    assert not numbering
    assert [numbering.leave_out(number) for number in (5, 1, 5)] == [True, True, True]
    assert [numbering.new(number) for number in (0, 2, 4, 6)] == [0, 1, 3, 4]
    assert [number in numbering for number in (1, 2, 5)] == [True, False, True]


def test_what_is_left_out_is_bounded() -> None:
    numbering = Numbering()
    assert all(numbering.leave_out(number) for number in range(_MOST))
    assert not numbering.leave_out(_MOST)
