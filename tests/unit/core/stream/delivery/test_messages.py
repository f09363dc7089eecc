"""Thinking left out of a stream of Messages, by hand-made events; the recordings are a property test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.stream.delivery.frame import FIELDS
from gateway.core.stream.delivery.messages import MessagesDelivery, thinking_of, without_thinking
from tests.fakes.delivered import Taken, payloads
from tests.fakes.engine_events import typed


def block(kind: str, at: int, text: str) -> list[bytes]:
    field = {"thinking": "thinking", "text": "text", "tool_use": "partial_json"}.get(kind, "data")
    return [
        typed("content_block_start", index=at, content_block={"type": kind}),
        typed("content_block_delta", index=at, delta={"type": f"{kind}_delta", field: text}),
        typed("content_block_stop", index=at),
    ]


def run(*events: bytes) -> tuple[list[Any], Taken]:
    taken = Taken()
    delivery = MessagesDelivery(taken)
    delivery.begin(b"")
    return [value for _, value in payloads(b"".join(map(delivery.event, events)))], taken


def test_blocks_after_thinking_move_up_each_time() -> None:
    signature = typed("content_block_delta", index=1, delta={"type": "signature_delta", "signature": "s"})
    values, taken = run(
        typed("message_start", message={"content": []}),
        *block("text", 0, "a"),
        *block("thinking", 1, "why"),
        signature,
        *block("tool_use", 2, "{}"),
        *block("redacted_thinking", 3, "x"),
        *block("text", 4, "b"),
        typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        typed("message_stop"),
    )
    starts = [(it["content_block"]["type"], it["index"]) for it in values if it["type"] == "content_block_start"]
    assert starts == [("text", 0), ("tool_use", 1), ("text", 2)]
    assert [it["index"] for it in values if "index" in it] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert taken.texts == {0: "why"}


@pytest.mark.parametrize(
    "event",
    [
        typed("content_block_delta", index=0, delta={"type": "text_delta", "text": "thinking"}),
        typed("message_start", message={"thinking": 1}),
        typed("ping", thinking=1),
        b": thinking\n\n",
        b"data: thinking\n\n",
    ],
)
def test_what_has_no_thinking_in_it_comes_as_it_is(event: bytes) -> None:
    assert MessagesDelivery(Taken()).event(event) == event


def test_a_message_loses_its_thinking_blocks() -> None:
    text, thought = {"type": "text", "text": "so"}, {"type": "thinking", "thinking": "why", "signature": "s"}
    body = FIELDS.decode(json.dumps({"id": "m", "content": [thought, text, {"type": "redacted_thinking"}]}).encode())
    assert thinking_of(body) == [b"why"]
    assert json.loads(bytes(without_thinking(body)["content"])) == [text]
    for bare in (b'{"content":"text"}', b'{"content":null}', b"{}", b'{"content":[{"type":"text"}]}'):
        fields = FIELDS.decode(bare)
        assert without_thinking(fields) is fields
        assert thinking_of(fields) == []
