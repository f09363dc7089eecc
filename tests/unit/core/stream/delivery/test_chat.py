"""Delivery in a stream of chat, event by event; every mode over every recording is a property test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.stream.delivery import choice as choice_module
from gateway.core.stream.delivery.delivered import Delivered, deliver_stream
from gateway.core.stream.delivery.mode import Delivery, ThinkTags
from gateway.core.stream.edit import Edit, Untouched
from gateway.core.stream.summary import Dialect
from tests.fakes.delivered import Taken, payloads
from tests.fakes.engine_events import DONE, chat, event, role, usage

TOOL = [{"index": 0, "function": {"name": "f", "arguments": "{"}}]
OPENED = ThinkTags(opened=True)


def edit(
    mode: Delivery, *, tags: ThinkTags | None = None, taken: Taken | None = None, dialect: Dialect = Dialect.CHAT
) -> Edit:
    made = deliver_stream(mode, dialect, tags=tags, after=Untouched(), take=taken or Taken(), side=None)
    made.begin(b'data: {"id":"c","object":"o","created":1,"model":"m","choices":[]}\n\n')
    return made


def report() -> Any:
    raise AssertionError


def out(mode: Delivery, *events: bytes, tags: ThinkTags | None = None, taken: Taken | None = None) -> bytes:
    return edit(mode, tags=tags, taken=taken).apply(b"".join(events), report)


def deltas(body: bytes) -> list[Any]:
    return [value["choices"][0]["delta"] for _, value in payloads(body) if value != "[DONE]" and value["choices"]]


BOTH_CHANNELS = chat(reasoning="why", content="so", role="assistant")


@pytest.mark.parametrize(
    "mode, given, made",
    [
        (Delivery.REASONING, {"reasoning_content": "why", "x": 1}, [{"reasoning": "why", "x": 1}]),
        (Delivery.REASONING, {"reasoning": "why", "reasoning_content": "why"}, [{"reasoning": "why"}]),
        (Delivery.REASONING_CONTENT, {"reasoning": None}, [{"reasoning_content": None}]),
        (Delivery.REASONING_CONTENT, {"role": "a", "reasoning": "why"}, [{"role": "a", "reasoning_content": "why"}]),
        (
            Delivery.BOTH,
            {"reasoning": "why", "content": "so"},
            [{"reasoning": "why", "reasoning_content": "why", "content": "so"}],
        ),
        (Delivery.BOTH, {"reasoning": 'wh"y'}, [{"reasoning": 'wh"y', "reasoning_content": 'wh"y'}]),
        (Delivery.DROP, {"reasoning": "why"}, []),
        (Delivery.DROP, {"reasoning": "why", "content": None}, []),
        (Delivery.DROP, {"reasoning": "why", "content": "so"}, [{"content": "so"}]),
        (Delivery.DROP, {"reasoning": "why", "role": "assistant"}, [{"role": "assistant"}]),
        (Delivery.DROP, {"reasoning": "why", "tool_calls": TOOL}, [{"tool_calls": TOOL}]),
        (Delivery.DROP, {"reasoning": None, "content": "so"}, [{"content": "so"}]),
        (Delivery.TAGS, {"reasoning": "why"}, [{"content": "<think>why"}]),
        (Delivery.TAGS, {"reasoning": "why", "content": "so"}, [{"content": "<think>why</think>so"}]),
        (
            Delivery.TAGS,
            {"reasoning": "why", "tool_calls": TOOL},
            [{"tool_calls": TOOL, "content": "<think>why</think>"}],
        ),
        (Delivery.TAGS, {"content": "so"}, [{"content": "so"}]),
    ],
)
def test_a_delta_becomes_what_the_mode_says(mode: Delivery, given: dict[str, Any], made: list[dict[str, Any]]) -> None:
    assert deltas(out(mode, chat(**given))) == made


def test_a_delta_with_several_channels_becomes_several_events_under_their_names() -> None:
    value = {
        "id": "c",
        "choices": [
            {
                "index": 3,
                "delta": {"role": "a", "reasoning": "why", "content": "so", "tool_calls": TOOL},
                "logprobs": {"content": []},
                "finish_reason": "stop",
            }
        ],
        "usage": {"completion_tokens": 2},
    }
    names, values = zip(*payloads(out(Delivery.EVENTS, event(value))), strict=True)
    assert names == ("reasoning", "content", "tool")
    assert [it["choices"][0]["delta"] for it in values] == [
        {"role": "a", "reasoning": "why"},
        {"content": "so"},
        {"tool_calls": TOOL},
    ]
    assert [it["choices"][0]["finish_reason"] for it in values] == [None, None, "stop"]
    assert [it["choices"][0]["logprobs"] for it in values] == [None, None, {"content": []}]
    assert ["usage" in it for it in values] == [False, False, True]
    assert {it["choices"][0]["index"] for it in values} == {3}


def test_the_name_goes_before_an_event_that_stays_as_it_is() -> None:
    events = [role(), chat(content="so", x=1), chat(tool_calls=TOOL), chat(finish="stop"), usage(3), DONE, b": c\n\n"]
    names = [b"", b"event: content\n", b"event: tool\n", b"", b"", b"", b""]
    assert out(Delivery.EVENTS, *events) == b"".join(name + it for name, it in zip(names, events, strict=True))


def test_choices_in_one_event_are_named_each_by_itself() -> None:
    both = event(
        {
            "choices": [
                {"index": 0, "delta": {"reasoning": "a"}},
                {"index": 1, "delta": {"content": "b"}},
                {"index": 2, "delta": {}},
            ],
            "usage": {"completion_tokens": 1},
        }
    )
    found = payloads(out(Delivery.EVENTS, both))
    assert [(name, value["choices"][0]["index"], "usage" in value) for name, value in found] == [
        ("reasoning", 0, False),
        ("content", 1, False),
        ("", 2, True),
    ]


def test_of_several_choices_only_those_that_are_left_come() -> None:
    both = event({"choices": [{"index": 0, "delta": {"reasoning": "a"}}, {"index": 1, "delta": {"content": "b"}}]})
    ((_, value),) = payloads(out(Delivery.DROP, both))
    assert value["choices"] == [{"index": 1, "delta": {"content": "b"}}]
    assert out(Delivery.DROP, both.replace(b"content", b"reasoning")) == b""


def test_usage_and_an_end_come_although_nothing_else_is_left() -> None:
    assert deltas(out(Delivery.DROP, chat(reasoning="a", usage={"completion_tokens": 1}))) == [{}]
    assert deltas(out(Delivery.DROP, chat(reasoning="a", finish="length"))) == [{}]


def test_what_tells_the_tokens_of_hidden_reasoning_goes_with_it() -> None:
    tokens = {"logprobs": {"content": [1]}, "token_ids": [7]}
    mixed = event({"choices": [{"index": 0, "delta": {"reasoning": "a", "content": "b"}, **tokens}]})
    ((_, value),) = payloads(out(Delivery.DROP, mixed))
    assert value["choices"][0] == {"index": 0, "delta": {"content": "b"}, "logprobs": None, "token_ids": None}
    alone = event({"choices": [{"index": 0, "delta": {"content": "b"}, **tokens}]})
    assert out(Delivery.DROP, alone) == alone
    assert out(Delivery.DROP, event({"choices": [{"index": 0, "delta": {"reasoning": "a"}, **tokens}]})) == b""


def test_reasoning_that_is_taken_out_is_handed_on_by_choice() -> None:
    taken = Taken()
    out(
        Delivery.SIDE,
        chat(reasoning="a"),
        chat(reasoning='"\n', index=1),
        chat(reasoning="c", content="d"),
        taken=taken,
    )
    assert taken.texts == {0: "ac", 1: '"\n'}


def test_the_closing_tag_comes_at_the_change_of_each_choice_or_at_the_end() -> None:
    body = out(
        Delivery.TAGS,
        chat(reasoning="a"),
        chat(reasoning="x", index=1),
        chat(reasoning="b"),
        chat(content="c"),
        chat(content="d"),
        chat(reasoning="e"),
        chat(finish="stop"),
        DONE,
    )
    texts: dict[int, str] = {0: "", 1: ""}
    for _, value in payloads(body):
        if value != "[DONE]":
            choice = value["choices"][0]
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == {0: "<think>ab</think>cd<think>e</think>", 1: "<think>x</think>"}
    assert body.endswith(DONE)
    made = payloads(body)[-2][1]
    assert made == {
        "id": "c",
        "object": "o",
        "created": 1,
        "model": "m",
        "choices": [{"index": 1, "finish_reason": None, "delta": {"content": "</think>"}}],
    }


def test_an_open_tag_is_closed_before_an_error() -> None:
    error = event({"error": {"message": "x"}})
    found = out(Delivery.TAGS, chat(reasoning="a"), error, DONE)
    assert [json.dumps(value)[:9] for _, value in payloads(found)] == [
        '{"choices',
        '{"id": "c',
        '{"error":',
        '"[DONE]"',
    ]


@pytest.mark.parametrize(
    "given",
    [
        b": data and comments\n\n",
        b'data: {"choices":[{"delta":{"reasoning":1}]}\n\n',
        b'data: {"choices":[{"index":0.5,"delta":{"reasoning":"a"}}]}\n\n',
        b'data: {"choices":{"reasoning":"a"}}\n\n',
        b'data: {"choices":[{"delta":"reasoning"}]}\n\n',
        b'data: {"x":{"reasoning":"a"}}\n\n',
        b"event: x\n\n",
    ],
)
@pytest.mark.parametrize("mode", [mode for mode in Delivery if mode is not Delivery.PASS])
@pytest.mark.parametrize("tags", [None, ThinkTags()])
def test_what_is_no_chunk_of_chat_comes_as_it_is(given: bytes, mode: Delivery, tags: ThinkTags | None) -> None:
    assert out(mode, given, tags=tags) == given


def test_a_chunk_without_a_head_is_made_with_what_there_is() -> None:
    made = deliver_stream(Delivery.TAGS, Dialect.CHAT, tags=None, after=Untouched(), take=Taken(), side=None)
    made.begin(b": comment\n\ndata: nonsense\n\n")
    body = made.apply(chat(reasoning="a") + DONE, report)
    assert payloads(body)[1][1]["choices"][0]["delta"] == {"content": "</think>"}


# --- tags in the text ---------------------------------------------------------------------------------------------


def test_the_beginning_of_a_tag_waits_and_comes_out_with_the_end_or_a_tool() -> None:
    for last in (chat(finish="stop"), chat(tool_calls=TOOL)):
        made = edit(Delivery.REASONING, tags=ThinkTags())
        assert deltas(made.apply(chat(content="a <th"), report)) == [{"content": "a "}]
        assert deltas(made.held) == [{"content": "<th"}], "what the client would get should the stream break off"
        assert made.apply(chat(content="in"), report) == b""
        assert deltas(made.apply(last, report))[0]["content"] == "<thin"
        assert made.held == b""


@pytest.mark.parametrize(
    "mode, held",
    [
        (Delivery.REASONING, {"reasoning": "</th"}),
        (Delivery.BOTH, {"reasoning": "</th", "reasoning_content": "</th"}),
        (Delivery.EVENTS, {"reasoning": "</th"}),
        (Delivery.TAGS, {"content": "<think></th"}),
        (Delivery.DROP, None),
    ],
)
def test_what_is_held_of_reasoning_is_told_in_the_way_of_the_mode(mode: Delivery, held: dict[str, str] | None) -> None:
    made = edit(mode, tags=OPENED)
    assert made.apply(chat(content="</th"), report) == b""
    assert deltas(made.held) == ([held] if held else [])
    body = made.apply(DONE, report)
    assert made.held == b""
    expected = [held] if held else []
    assert deltas(body) == (expected if mode is not Delivery.TAGS else [*expected, {"content": "</think>"}])


@pytest.mark.parametrize("mode", [mode for mode in Delivery if mode not in {Delivery.PASS, Delivery.TAGS}])
def test_at_a_break_what_is_held_comes_out_and_nothing_else(mode: Delivery) -> None:
    made = edit(mode, tags=OPENED)
    made.apply(chat(content="a </th"), report)
    held = made.held
    assert made.at_break() == held


@pytest.mark.parametrize(
    "tags, events, owed",
    [
        (None, (chat(reasoning="a"),), [{"content": "</think>"}]),
        (None, (chat(reasoning="a"), chat(content="b")), []),
        (None, (chat(content="b"),), []),
        (OPENED, (chat(content="a"),), [{"content": "</think>"}]),
        (OPENED, (chat(content="a</th"),), [{"content": "</th"}, {"content": "</think>"}]),
        (OPENED, (chat(content="</th"),), [{"content": "<think></th"}, {"content": "</think>"}]),
        (OPENED, (chat(content="a</think>b<thi"),), [{"content": "<thi"}]),
    ],
)
def test_at_a_break_reasoning_between_tags_is_closed_and_no_end_is_made_up(
    tags: ThinkTags | None, events: tuple[bytes, ...], owed: list[dict[str, str]]
) -> None:
    made = edit(Delivery.TAGS, tags=tags)
    before = b"".join(made.apply(it, report) for it in events)
    rest = made.at_break()
    assert deltas(rest) == owed
    text = "".join(delta["content"] for delta in deltas(before + rest))
    assert text.count("<think>") == text.count("</think>")
    assert all(choice["finish_reason"] is None for _, value in payloads(rest) for choice in value["choices"])


def test_an_event_whose_text_is_held_comes_for_its_tokens() -> None:
    tokens = event({"choices": [{"index": 0, "delta": {"content": "<th"}, "token_ids": [5]}]})
    assert deltas(out(Delivery.REASONING, tokens, tags=ThinkTags())) == [{}]
    assert out(Delivery.DROP, tokens, tags=ThinkTags()) == b""


def test_a_role_chunk_with_no_text_is_left_alone() -> None:
    for mode in Delivery:
        if mode is not Delivery.PASS:
            assert out(mode, role(), chat(content=None), tags=OPENED) == role() + chat(content=None)


def test_choices_without_number_are_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice_module, "_MOST_CHOICES", 1)
    spaced = chat(content="<think>a", index=1).replace(b":", b": ")
    assert out(Delivery.REASONING, chat(content="<think>a"), spaced, tags=ThinkTags()).endswith(spaced)


def test_a_reasoning_field_beside_tagged_text_counts_too() -> None:
    assert deltas(out(Delivery.REASONING, chat(reasoning="a", content="<think>b</think>c"), tags=ThinkTags())) == [
        {"reasoning": "ab", "content": "c"}
    ]


def test_the_edit_after_sees_what_delivery_made() -> None:
    made = deliver_stream(Delivery.DROP, Dialect.CHAT, tags=None, after=Untouched(), take=Taken(), side=None)
    assert isinstance(made, Delivered)
    assert made.needles == (b"data",)
