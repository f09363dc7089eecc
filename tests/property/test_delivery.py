"""Reasoning delivery against a plain reading: every recording, every mode, any cut, and streams made up at random.

Contract: reasoning and content are the engine's text, tool calls, ends and usage are intact, what a mode does not mean
is byte for byte what the engine sent.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.stream.delivery.delivered import deliver_body, deliver_stream
from gateway.core.stream.delivery.mode import Delivery, ThinkTags, possible
from gateway.core.stream.delivery.split import TagSplitter
from gateway.core.stream.edit import Edit, ReportAsEvent, ReportInUsage, Untouched, UsageStripped, split_events
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.summary import Dialect
from gateway.core.stream.whole import WholeEvents
from tests.fakes.backend import cut
from tests.fakes.delivered import (
    ReadAnswer,
    Taken,
    inlined,
    payloads,
    read_chat,
    read_chat_body,
    read_typed,
)
from tests.fakes.engine_events import DONE, chat, event, role, usage
from tests.fakes.recordings import Recording, load_all, streams

CHAT = [r for r in streams() if r.dialect is Dialect.CHAT]
TYPED = [r for r in streams() if r.dialect in {Dialect.RESPONSES, Dialect.MESSAGES}]
BODIES = [
    r for r in load_all() if r.dialect and not r.is_event_stream and r.status == 200 and b"count" not in r.name.encode()
]
MODES = [mode for mode in Delivery if mode is not Delivery.PASS]
HIDING = {Delivery.DROP, Delivery.SIDE}
NAMES = {
    Delivery.REASONING: ("reasoning",),
    Delivery.REASONING_CONTENT: ("reasoning_content",),
    Delivery.BOTH: ("reasoning", "reasoning_content"),
}
AFTER = (Untouched, UsageStripped, ReportInUsage, lambda: ReportAsEvent(UsageStripped()))
CUTS = st.lists(st.integers(0, 25_000), max_size=12)


def report() -> PaceReport:
    return PaceReport(request_id="r")


def played(edit: Edit, pieces: list[bytes]) -> bytes:
    """What the relay would write: whole events only, the edit where it is concerned, what is held at the end."""
    whole, out, begun = WholeEvents(), b"", False
    for piece in pieces:
        events = whole.feed(piece)
        if not events:
            continue
        if not begun:
            edit.begin(events)
            begun = True
        if edit.held or any(needle in events for needle in edit.needles):
            events = edit.apply(events, report)
        out += events
    return out + edit.held + whole.take_rest()


def delivered(
    body: bytes,
    mode: Delivery,
    dialect: Dialect,
    *,
    cuts: list[int],
    taken: Taken,
    tags: ThinkTags | None = None,
    after: Edit | None = None,
) -> bytes:
    edit = deliver_stream(mode, dialect, tags=tags, after=after or Untouched(), take=taken, side=None)
    return played(edit, cut(body, cuts))


def check_text(mode: Delivery, seen: ReadAnswer, sent: ReadAnswer, *, taken: Taken) -> None:
    """The text of every choice, whichever way it came."""
    for index in sent.content:
        want = sent.engine_text(index)
        match mode:
            case Delivery.TAGS:
                assert inlined(seen.content[index]) == want
                assert seen.reasoning[index] == ""
            case Delivery.DROP | Delivery.SIDE:
                assert (taken.texts[index], seen.content[index]) == want
                assert seen.reasoning[index] == ""
            case _:
                assert seen.engine_text(index) == want


def check_rest(seen: ReadAnswer, sent: ReadAnswer) -> None:
    assert (seen.tools, seen.ends, seen.roles) == (sent.tools, sent.ends, sent.roles)
    assert (seen.errors, seen.done) == (sent.errors, sent.done)


def check_names(mode: Delivery, body: bytes) -> None:
    """Only the names that the client asked for, and both with the same text."""
    names = NAMES.get(mode)
    if names is None:
        return
    for _, value in payloads(body):
        for choice in value.get("choices", ()) if value != "[DONE]" else ():
            delta = choice.get("delta") or choice.get("message") or {}
            found = [name for name in ("reasoning", "reasoning_content") if name in delta]
            assert found in ([], list(names))
            assert len({delta[name] for name in found}) <= 1


def check_events(body: bytes) -> None:
    """Under `events` each name says what is in its event, and each event has one thing in it."""
    for name, value in payloads(body):
        choices = value["choices"] if value != "[DONE]" and "choices" in value else []
        deltas = [choice["delta"] for choice in choices]
        found = {
            "reasoning": any(delta.get("reasoning") or delta.get("reasoning_content") for delta in deltas),
            "content": any(delta.get("content") for delta in deltas),
            "tool": any(delta.get("tool_calls") for delta in deltas),
        }
        assert [name] * bool(name) == [kind for kind, there in found.items() if there]


# --- recordings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=120, deadline=None)
@given(recording=st.sampled_from(CHAT), cuts=CUTS, after=st.sampled_from(AFTER))
def test_chat_recordings_keep_their_text_in_every_mode(
    mode: Delivery, recording: Recording, cuts: list[int], after: Any
) -> None:
    taken = Taken()
    out = delivered(recording.body, mode, Dialect.CHAT, cuts=cuts, taken=taken, after=after())
    sent, seen = read_chat(recording.body), read_chat(out, names=NAMES.get(mode, ("reasoning",)))
    check_text(mode, seen, sent, taken=taken)
    check_rest(seen, sent)
    check_names(mode, out)
    if mode is Delivery.EVENTS:
        check_events(out)
    if after is Untouched:
        assert seen.usages == sent.usages
    if after is ReportInUsage:
        for it in seen.usages:
            it.pop("pacekeeper", None)
        assert seen.usages == sent.usages


@settings(max_examples=150, deadline=None)
@given(recording=st.sampled_from(CHAT), cuts=CUTS, mode=st.sampled_from(MODES))
def test_what_has_no_reasoning_in_it_is_byte_for_byte_what_the_engine_sent(
    recording: Recording, cuts: list[int], mode: Delivery
) -> None:
    out = split_events(delivered(recording.body, mode, Dialect.CHAT, cuts=cuts, taken=Taken()))
    bare = [it[it.index(b"\n") + 1 :] if it.startswith(b"event: ") else it for it in out]
    touched = mode is Delivery.TAGS
    for sent in split_events(recording.body):
        if (
            b'"reasoning":' not in sent
            and not (touched and b'"content":"' in sent)
            and not (touched and (b'"finish_reason":"' in sent or b'"tool_calls"' in sent))
        ):
            assert sent in bare


@pytest.mark.parametrize("mode", [Delivery.DROP, Delivery.SIDE])
@settings(max_examples=120, deadline=None)
@given(recording=st.sampled_from(TYPED), cuts=CUTS)
def test_typed_recordings_lose_their_reasoning_and_nothing_else(
    mode: Delivery, recording: Recording, cuts: list[int]
) -> None:
    assert recording.dialect is not None
    taken = Taken()
    out = delivered(recording.body, mode, recording.dialect, cuts=cuts, taken=taken)
    sent, seen = read_typed(recording.body), read_typed(out)
    check_text(mode, seen, sent, taken=taken)
    check_rest(seen, sent)
    assert seen.usages == sent.usages
    assert all(name == value["type"] for name, value in payloads(out))
    check_numbers([value for _, value in payloads(out)])


def check_numbers(events: list[Any]) -> None:
    """Numbers without gaps, each item or block begun before it goes on, none of them reasoning."""
    sequence = [it["sequence_number"] for it in events if "sequence_number" in it]
    assert sequence == list(range(len(sequence)))
    begun = [
        it.get("item") or it.get("content_block") for it in events if it["type"].endswith(("item.added", "block_start"))
    ]
    assert {it["type"] for it in begun} <= {"message", "text", "function_call", "tool_use"}
    numbers = [it.get("output_index", it.get("index")) for it in events]
    assert set(numbers) - {None} == set(range(len(begun)))
    for it in events:
        if it["type"] == "response.completed":
            assert [item["type"] for item in it["response"]["output"]] == [item["type"] for item in begun]


@settings(max_examples=150, deadline=None)
@given(recording=st.sampled_from(BODIES), mode=st.sampled_from(MODES))
def test_whole_bodies_keep_their_text_in_every_mode(recording: Recording, mode: Delivery) -> None:
    dialect = recording.dialect
    assert dialect is not None
    if mode not in possible(dialect, stream=False, tagged=False):
        return
    taken = Taken()
    out = deliver_body(recording.body, mode, dialect, tags=None, take=taken)
    before, after = json.loads(recording.body), json.loads(out)
    assert after.get("usage") == before.get("usage")
    if dialect is Dialect.CHAT:
        sent, seen = read_chat_body(recording.body), read_chat_body(out, names=NAMES.get(mode, ("reasoning",)))
        check_text(mode, seen, sent, taken=taken)
        check_rest(seen, sent)
    else:
        kept = [it for it in _items(before) if it["type"] not in {"reasoning", "thinking"}]
        assert _items(after) == kept
        gone = [it for it in _items(before) if it["type"] in {"reasoning", "thinking"}]
        text = "".join(it.get("thinking") or "".join(part["text"] for part in it["content"]) for it in gone)
        assert taken.texts[0] == text


def _items(body: Any) -> list[Any]:
    return list(body["output"] if "output" in body else body["content"])


# --- made-up streams ----------------------------------------------------------------------------------------------

TEXT = st.text(alphabet=st.sampled_from('ab é語😀\n"\\<>/'), max_size=6)
TOOL = [{"index": 0, "id": "t", "function": {"name": "f", "arguments": '{"a'}}]
EXTRAS = st.fixed_dictionaries({}, optional={"logprobs": st.just({"content": [1]}), "token_ids": st.just([7])})


@st.composite
def deltas(draw: st.DrawFn) -> bytes:
    """One event: any channels in one delta, of one choice or of both, with whatever else stands in an event."""
    choices = []
    for index in draw(st.sampled_from([(0,), (1,), (0, 1)])):
        delta: dict[str, Any] = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "reasoning": TEXT,
                    "content": TEXT | st.none(),
                    "tool_calls": st.just(TOOL),
                    "x": st.just({"y": [1]}),
                },
            )
        )
        choices.append({"index": index, "delta": delta, "finish_reason": None, **draw(EXTRAS)})
    value: dict[str, Any] = {"id": "c", "created": 1, "model": "m", "choices": choices}
    return event(value | draw(st.fixed_dictionaries({}, optional={"usage": st.just({"completion_tokens": 3})})))


ENDS = st.sampled_from(
    [
        (chat(finish="stop"), chat(finish="length", index=1), usage(9), DONE),
        (chat(finish="stop", content="z"), chat(finish="tool_calls", index=1, tool_calls=TOOL), DONE),
        (chat(finish="length", reasoning="z"), chat(finish="stop", index=1), usage(9), DONE),
        (event({"error": {"message": "x", "code": 500}}), DONE),
        (DONE,),
        (),
    ]
)
NOISE = st.sampled_from([b": comment\n\n", b"\n\n", b"id: 3\n\n"])
STREAMS = st.tuples(st.just((role(), role(1))), st.lists(st.one_of(deltas(), deltas(), NOISE), max_size=12), ENDS).map(
    lambda parts: b"".join([*parts[0], *parts[1], *parts[2]])
)


@settings(max_examples=300, deadline=None)
@given(body=STREAMS, cuts=st.lists(st.integers(0, 4000), max_size=8), mode=st.sampled_from(MODES))
def test_any_stream_of_chat_keeps_its_text_in_every_mode(body: bytes, cuts: list[int], mode: Delivery) -> None:
    body = body.replace(b"<think>", b"").replace(b"</think>", b"")
    taken = Taken()
    out = delivered(body, mode, Dialect.CHAT, cuts=cuts, taken=taken)
    sent, seen = read_chat(body), read_chat(out, names=NAMES.get(mode, ("reasoning",)))
    check_text(mode, seen, sent, taken=taken)
    check_rest(seen, sent)
    check_names(mode, out)
    assert seen.usages == sent.usages
    if mode is Delivery.EVENTS:
        check_events(out)
    if mode not in HIDING:
        for name in ("logprobs", "token_ids"):
            assert out.count(b'"%b":[7]' % name.encode()) == body.count(b'"%b":[7]' % name.encode())
    assert out.count(b": comment\n\n") == body.count(b": comment\n\n")


# --- tags in the text ---------------------------------------------------------------------------------------------


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
            check_inlined(seen.content[index], reasoning, content, closed=end != "nothing")
        elif mode in HIDING:
            assert seen.content[index] == content
            assert taken.texts[index] == reasoning or (end == "nothing" and reasoning.startswith(taken.texts[index]))
        else:
            assert seen.engine_text(index) == (reasoning, content)


def check_inlined(text: str, reasoning: str, content: str, *, closed: bool) -> None:
    """Text in which tags are put again is split into the same; what was not closed may stay so if it broke off."""
    if reasoning.count("<think>") != reasoning.count("</think>"):
        return  # pairs inside reasoning that the engine left open: where they end is not to be seen any more
    assert plainly_split(text, opened=False) == (reasoning, content)
    if closed and "think>" not in reasoning + content:
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
        check_inlined(seen.content[0], reasoning, content, closed=True)
    else:
        assert (taken.texts[0] if mode in HIDING else seen.reasoning[0], seen.content[0]) == (reasoning, content)
    assert seen.ends[0] == ["stop"]


# --- anything -----------------------------------------------------------------------------------------------------


@settings(max_examples=500, deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.lists(
            st.sampled_from(
                [
                    b'data: {"choices":[{"index":0,"delta":{"reasoning":"\xff"}}]}\n\n',
                    b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n',
                    b'data: {"choices":[{"index":"x","delta":{"reasoning":"a"}}]}\n\n',
                    b'data: {"choices":[{"delta":[1],"reasoning":2}]}\n\n',
                    b'data: {"choices":{"reasoning":1}}\n\n',
                    b'data: {"choices":[{"delta":{"reasoning":{"a":1},"content":3}}]}\n\n',
                    b'data: {"\xff":1,"choices":[{"delta":{"reasoning":"a"}}]}\n\n',
                    b'data: "reasoning"\n\n',
                    b'event: x\r\ndata: {"type":"response.reasoning_text.delta","output_index":-1,"delta":7}\r\n\r\n',
                    b'data: {"type":"content_block_start","index":99999999999999999999,"content_block":{"type":"thinking"}}\n\n',
                    b'data: {"type":"response.completed","response":{"output":{"reasoning":1}}}\n\n',
                    b"data: " + b'{"reasoning":' * 2000 + b"\n\n",
                ]
            ),
            max_size=8,
        ).map(b"".join),
    ),
    dialect=st.sampled_from(Dialect),
    mode=st.sampled_from(MODES),
    tags=st.sampled_from([None, ThinkTags(), ThinkTags(opened=True)]),
)
def test_anything_goes_through_without_a_failure(
    data: bytes, dialect: Dialect, mode: Delivery, tags: ThinkTags | None
) -> None:
    edit = deliver_stream(mode, dialect, tags=tags, after=UsageStripped(), take=lambda *_: None, side=None)
    assert isinstance(played(edit, [data]), bytes)
    assert isinstance(deliver_body(data.removeprefix(b"data: "), mode, dialect, tags=tags, take=lambda *_: None), bytes)


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
