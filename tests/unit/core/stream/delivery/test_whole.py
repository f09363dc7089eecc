"""Delivery in an answer in one piece; every mode over every recording is a property test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.stream.delivery.delivered import deliver_body, leave_out
from gateway.core.stream.delivery.mode import Delivery, ThinkTags
from gateway.core.stream.summary import Dialect
from tests.fakes.delivered import Taken


def out(mode: Delivery, message: dict[str, Any], *, tags: ThinkTags | None = None, **choice: Any) -> Any:
    body = json.dumps({"id": "c", "choices": [{"index": 0, "message": message, **choice}], "usage": {"x": 1}})
    made = json.loads(deliver_body(body.encode(), mode, Dialect.CHAT, tags=tags, take=leave_out))
    assert (made["id"], made["usage"]) == ("c", {"x": 1})
    return made["choices"][0]


@pytest.mark.parametrize(
    "mode, given, made",
    [
        (Delivery.REASONING, {"reasoning_content": "why"}, {"reasoning": "why"}),
        (
            Delivery.BOTH,
            {"content": "so", "reasoning": None},
            {"content": "so", "reasoning": None, "reasoning_content": None},
        ),
        (Delivery.DROP, {"content": "so", "reasoning": "why", "refusal": None}, {"content": "so", "refusal": None}),
        (Delivery.TAGS, {"content": "so", "reasoning": "why"}, {"content": "<think>why</think>so"}),
        (Delivery.TAGS, {"content": None, "reasoning": "why"}, {"content": "<think>why</think>"}),
        (Delivery.TAGS, {"content": "so", "reasoning": None}, {"content": "so"}),
        (Delivery.TAGS, {"content": None, "reasoning": None}, {"content": None}),
    ],
)
def test_a_message_becomes_what_the_mode_says(mode: Delivery, given: dict[str, Any], made: dict[str, Any]) -> None:
    assert out(mode, given)["message"] == made


def test_hidden_reasoning_takes_what_tells_its_tokens_with_it() -> None:
    tokens = {"logprobs": {"content": [1]}, "token_ids": [7]}
    assert out(Delivery.DROP, {"reasoning": "why"}, **tokens) == {
        "index": 0,
        "message": {},
        "logprobs": None,
        "token_ids": None,
    }
    assert out(Delivery.DROP, {"content": "so"}, **tokens)["token_ids"] == [7]


def test_tags_in_the_text_of_an_answer_without_a_reason_to_end_are_split_too() -> None:
    assert out(Delivery.REASONING, {"content": "<think>why</th"}, tags=ThinkTags())["message"] == {
        "content": None,
        "reasoning": "why</th",
    }


def test_tagged_completions_lose_reasoning_in_their_text() -> None:
    taken = Taken()
    body = b'{"choices":[{"index":1,"text":"<think>why</think>so"},{"index":2,"text":"<think>all"},{"text":null}]}'
    made = json.loads(deliver_body(body, Delivery.SIDE, Dialect.COMPLETIONS, tags=ThinkTags(), take=taken))
    assert [choice["text"] for choice in made["choices"]] == ["so", "", None]
    assert taken.texts == {1: "why", 2: "all"}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"choices":1}', b'{"error":{"reasoning":1}}', b'{"choices":[{"message":{"content":"x"}}]}'],
)
@pytest.mark.parametrize("tags", [None, ThinkTags()])
def test_a_body_with_nothing_to_deliver_stays_as_it_is(body: bytes, tags: ThinkTags | None) -> None:
    for dialect in Dialect:
        assert deliver_body(body, Delivery.DROP, dialect, tags=tags, take=leave_out) == body
