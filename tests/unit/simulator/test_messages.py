from __future__ import annotations

import json
import re
from itertools import count
from typing import Any

import pytest

from gateway.simulator import refusals
from gateway.simulator.asked import Asked
from gateway.simulator.messages import MessagesAnswer, stop_reason
from gateway.simulator.reply import Manners
from gateway.simulator.request import Channel, Emission, Timing, Token
from gateway.simulator.shapes import Form, Identity
from gateway.simulator.words import END, THINK_OPEN, tool_call

WORD = Token(" w", Channel.CONTENT, 7)
THOUGHT = Token(" t", Channel.REASONING, 8)
TIMING = Timing(queued_at=0.0, scheduled_at=1.0, first_token_at=3.0, last_token_at=7.0)
CALL = tuple(tool_call("look"))


def answer(manners: Manners | None = None, **asked: Any) -> MessagesAnswer:
    fields = {"form": Form.MESSAGES, "prompt": "p", "prompt_tokens": 2, "max_tokens": 9, "stream": True} | asked
    identity = Identity(Form.MESSAGES, "i", 1, "m", "f")
    numbers = count(1)
    hexes = lambda digits: f"{next(numbers):0{digits}x}"  # noqa: E731 - each id is another
    return MessagesAnswer(identity, Asked(**fields), manners=manners or Manners(), hexes=hexes)


def feed(of: MessagesAnswer, *tokens: Token, finish: str | None = None) -> list[dict[str, Any]]:
    due = of.take(Emission(1, 0, tokens, finish, len(tokens), 0, TIMING if finish else None))
    return read(of.flush(due) if due is not None else b"")


def read(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(rb"data: (\{.*)\n", data)]


def brief(events: list[dict[str, Any]]) -> list[Any]:
    """The events as (what, which block, text)."""
    told: list[Any] = []
    for event in events:
        match event["type"]:
            case "content_block_start":
                told.append(("start", event["index"], event["content_block"]["type"]))
            case "content_block_delta":
                kind, text = event["delta"].values()
                told.append((kind, event["index"], text))
            case "content_block_stop":
                told.append(("stop", event["index"]))
            case kind:
                told.append(kind)
    return told


def test_a_message_starts_with_the_first_token_even_if_it_says_nothing() -> None:
    events = feed(answer(), THINK_OPEN)
    assert brief(events) == ["message_start"]
    assert events[0]["message"]["usage"] == {"input_tokens": 2, "output_tokens": 0}
    assert answer().opening() == b""


def test_blocks_open_and_close_with_their_kind_and_thinking_is_signed() -> None:
    of = answer()
    assert brief(feed(of, THOUGHT))[1:] == [("start", 0, "thinking"), ("thinking_delta", 0, " t")]
    signature = "0" * 31 + "1"
    assert brief(feed(of, WORD)) == [
        ("signature_delta", 0, signature), ("stop", 0), ("start", 1, "text"), ("text_delta", 1, " w")
    ]  # fmt: skip
    assert brief(feed(of, END, finish="stop")) == [("stop", 1), "message_delta", "message_stop"]


def test_merged_tokens_of_every_kind_lose_nothing() -> None:
    events = feed(answer(tool="look"), THINK_OPEN, THOUGHT, WORD, *CALL, END, finish="tool_calls")
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in starts] == ["thinking", "text", "tool_use"]
    assert (starts[2]["name"], starts[2]["input"]) == ("look", {})
    given = "".join(
        event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta"
    )
    assert json.loads(given) == {"city": "Paris", "unit": "celsius"}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"] == {"input_tokens": 2, "output_tokens": len(CALL) + 4}


def test_text_inside_a_call_waits_until_the_call_is_over() -> None:
    of = answer(tool="look")
    for token in CALL:
        feed(of, token)
    assert brief(feed(of, WORD)) == []
    assert brief(feed(of, END, finish="tool_calls")) == [
        ("stop", 0), ("start", 1, "text"), ("text_delta", 1, " w"), ("stop", 1), "message_delta", "message_stop"
    ]  # fmt: skip


def test_a_message_without_a_word_has_no_block_in_a_stream_and_an_empty_one_in_a_body() -> None:
    assert brief(feed(answer(), THINK_OPEN, finish="length")) == ["message_start", "message_delta", "message_stop"]
    of = answer(stream=False)
    of.take(Emission(1, 0, (THINK_OPEN,), "length", 1, 0, TIMING))
    assert json.loads(of.whole())["content"] == [{"type": "text", "text": ""}]


def test_an_aborted_message_has_no_reason() -> None:
    of = answer()
    feed(of, WORD)
    assert read(of.abort())[-2]["delta"] == {"stop_reason": None, "stop_sequence": None}
    of = answer(stream=False)
    of.take(Emission(1, 0, (WORD,), None, 1, 0, None))
    of.abort()
    body = json.loads(of.whole())
    assert list(body) == ["id", "type", "role", "content", "model", "usage"]
    assert body["content"] == [{"type": "text", "text": " w"}]


def test_an_engines_death_is_an_error_event_and_the_end() -> None:
    data = answer().broken("EngineCore")
    assert read(data)[0]["error"]["type"] == "internal_error"
    assert "'message': 'En...am': None" in read(data)[0]["error"]["message"]
    assert data.endswith(b"0\r\n\r\n")


def test_a_whole_message_has_the_input_of_a_call_as_an_object() -> None:
    of = answer(stream=False, tool="look")
    of.take(Emission(1, 0, (THOUGHT, *CALL, END), "tool_calls", 9, 1, TIMING))
    body = json.loads(of.whole())
    assert [block["type"] for block in body["content"]] == ["thinking", "tool_use"]
    assert body["content"][1]["input"] == {"city": "Paris", "unit": "celsius"}
    assert body["stop_reason"] == "tool_use"
    assert "stop_sequence" not in body


def test_errors_of_the_serving_layer_have_the_apis_own_form_and_those_of_validation_not() -> None:
    served = answer().refusal(refusals.unknown_model("x", served="m"))
    assert list(json.loads(served.body)) == ["type", "error"]
    assert list(json.loads(served.body)["error"]) == ["type", "message"]
    unread = refusals.invalid("missing", "body.model", message="Field required", given={})
    assert answer().refusal(unread).body == unread.body


@pytest.mark.parametrize(
    "finish,stop,used,complete,told",
    [
        ("stop", None, False, False, ("end_turn", None)),
        ("stop", "x", False, False, ("stop_sequence", "x")),
        ("stop", "x", True, False, ("stop_sequence", "x")),
        ("stop", "x", True, True, ("tool_use", None)),
        ("stop", None, True, False, ("tool_use", None)),
        ("tool_calls", None, False, False, ("tool_use", None)),
        ("length", "x", True, True, ("max_tokens", None)),
        ("abort", None, True, True, (None, None)),
    ],
)
def test_a_finish_reason_becomes_a_stop_reason(
    finish: str, stop: str | None, used: bool, complete: bool, told: tuple[str | None, str | None]
) -> None:
    assert stop_reason(finish, stop, used_tool=used, is_complete=complete) == told
