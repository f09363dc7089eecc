"""Think tags in text against the rule of the documentation, and plain events against events taken apart."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.stream.delivery.delivered import deliver_body
from gateway.core.stream.delivery.mode import Delivery, ThinkTags
from gateway.core.stream.delivery.split import TagSplitter
from gateway.core.stream.summary import Dialect
from tests.fakes.delivered import Taken, payloads, read_chat, read_chat_body
from tests.fakes.engine_events import DONE, chat, event, role, usage
from tests.property.test_delivery import HIDING, MODES, NAMES, TEXT, check_names, check_rest, delivered


def plainly_split(text: str, *, opened: bool) -> tuple[str, str]:
    """The rule of the documentation, character by character."""
    depth, reasoning, content = int(opened), "", ""
    while text:
        if text.startswith("<think>"):
            text = text[7:]
            if depth == 1 and opened and not reasoning.strip() and not content:
                opened = False
                continue
            depth += 1
            reasoning += "<think>" if depth > 1 else ""
        elif text.startswith("</think>"):
            text = text[8:]
            if depth == 0:
                content += "</think>"
                continue
            depth -= 1
            reasoning += "</think>" if depth else ""
            opened = False
        else:
            if depth:
                reasoning += text[0]
            else:
                content += text[0]
            text = text[1:]
    return reasoning, content


TAGGED = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "</", "<thi", "nk>", "think>", "a", "é", "😀", " ", "\n", '"', "\\"]),
    max_size=14,
).map("".join)
PLACES = st.lists(st.integers(0, 60), max_size=12)


def cut_text(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted({place for place in places if place < len(text)}), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@settings(max_examples=1000, deadline=None)
@given(text=TAGGED, places=PLACES, opened=st.booleans())
def test_tags_are_found_whatever_way_the_text_is_cut(text: str, places: list[int], opened: bool) -> None:
    splitter = TagSplitter(ThinkTags(opened=opened))
    pieces = [piece for part in cut_text(text, places) for piece in splitter.feed(part)] + splitter.flush()
    assert all(piece for _, piece in pieces)
    found = tuple("".join(text for channel, text in pieces if channel == kind) for kind in ("reasoning", "content"))
    assert found == plainly_split(text, opened=opened)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=250, deadline=None)
@given(
    texts=st.tuples(TAGGED, TAGGED),
    places=PLACES,
    cuts=st.lists(st.integers(0, 4000), max_size=6),
    opened=st.booleans(),
    end=st.sampled_from(["stop", "done", "error", "nothing"]),
)
def test_a_stream_with_tags_in_its_text_gives_both_channels_in_every_mode(
    mode: Delivery, texts: tuple[str, str], places: list[int], cuts: list[int], opened: bool, end: str
) -> None:
    events = [role(), role(1)]
    for index, text in enumerate(texts):
        events += [chat(content=part, index=index) for part in cut_text(text, places)]
    error = event({"error": {"message": "x"}})
    ends = {
        "stop": [chat(finish="stop"), chat(finish="stop", index=1), usage(3), DONE],
        "done": [DONE],
        "error": [error, DONE],
    }
    body = b"".join([*events, *ends.get(end, [])])
    taken = Taken()
    out = delivered(body, mode, Dialect.CHAT, cuts=cuts, taken=taken, tags=ThinkTags(opened=opened))
    sent, seen = read_chat(body), read_chat(out, names=NAMES.get(mode, ("reasoning",)))
    check_rest(seen, sent)
    check_names(mode, out)
    assert seen.usages == sent.usages
    for index, text in enumerate(texts):
        reasoning, content = plainly_split(text, opened=opened)
        if mode is Delivery.TAGS:
            check_inlined(seen.content[index], reasoning, content)
        elif mode in HIDING:
            assert seen.content[index] == content
            assert taken.texts[index] == reasoning
        else:
            assert seen.engine_text(index) == (reasoning, content)


def check_inlined(text: str, reasoning: str, content: str) -> None:
    """Text in which tags are put again is split into the same, and every tag is closed, also where it broke off."""
    if reasoning.count("<think>") != reasoning.count("</think>"):
        return  # pairs inside reasoning that the engine left open: where they end is not to be seen any more
    assert plainly_split(text, opened=False) == (reasoning, content)
    if "think>" not in reasoning + content:
        assert text.count("<think>") == text.count("</think>")


@settings(max_examples=300, deadline=None)
@given(text=TAGGED, opened=st.booleans(), mode=st.sampled_from([mode for mode in MODES if mode is not Delivery.EVENTS]))
def test_a_whole_body_with_tags_in_its_text_gives_both_channels(text: str, opened: bool, mode: Delivery) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": text, "reasoning": None}, "finish_reason": "stop"}
    body = json.dumps({"id": "c", "choices": [choice], "usage": {"completion_tokens": 3}}).encode()
    taken = Taken()
    seen = read_chat_body(
        deliver_body(body, mode, Dialect.CHAT, tags=ThinkTags(opened=opened), take=taken),
        names=NAMES.get(mode, ("reasoning",)),
    )
    reasoning, content = plainly_split(text, opened=opened)
    if mode is Delivery.TAGS:
        check_inlined(seen.content[0], reasoning, content)
    else:
        assert (taken.texts[0] if mode in HIDING else seen.reasoning[0], seen.content[0]) == (reasoning, content)
    assert seen.ends[0] == ["stop"]


# --- the short way ------------------------------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(
    texts=st.lists(st.tuples(st.sampled_from(["reasoning", "content"]), TEXT, st.integers(0, 1)), max_size=14),
    mode=st.sampled_from(MODES),
    tags=st.sampled_from([None, ThinkTags(), ThinkTags(opened=True)]),
)
def test_plain_events_become_what_taking_them_apart_makes_of_them(
    texts: list[tuple[str, str, int]], mode: Delivery, tags: ThinkTags | None
) -> None:
    compact = [chat(index=index, **{name: text}) for name, text, index in texts]
    spaced = [it.replace(b'"choices":', b'"choices": ') for it in compact]
    found = []
    for events in (compact, spaced):
        taken = Taken()
        out = delivered(b"".join([role(), role(1), *events]), mode, Dialect.CHAT, cuts=[], taken=taken, tags=tags)
        found.append((payloads(out), dict(taken.texts)))
    assert found[0] == found[1]
