"""Reasoning delivery against a plain reading: every recording, every mode, any cut, and streams made up at random.

Contract: reasoning and content are the engine's text, tool calls, ends and usage are intact, what a mode does not mean
is byte for byte what the engine sent.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.stream.delivery.delivered import deliver_body, deliver_stream
from gateway.core.stream.delivery.mode import Delivery, ThinkTags, possible
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
    return out + edit.at_break() + whole.take_rest()


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
    for index in {*sent.content, *sent.reasoning}:
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
    for there, here in ((sent.tools, seen.tools), (sent.ends, seen.ends), (sent.roles, seen.roles)):
        assert {k: v for k, v in here.items() if v} == {k: v for k, v in there.items() if v}
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


def some_cuts(recording: Recording, mode: Delivery, count: int) -> list[int]:
    """Other cuts for each recording and mode, the same ones each time."""
    chance = random.Random(f"{recording.name} {mode} {count}")
    return [chance.randrange(len(recording.body) + 1) for _ in range(count)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("cuts", [0, 3, 40])
def test_every_recording_of_chat_keeps_its_text(mode: Delivery, after: Any, cuts: int) -> None:
    for recording in CHAT:
        check_chat(recording, mode, after, cuts=some_cuts(recording, mode, cuts))


@settings(max_examples=300, deadline=None)
@given(recording=st.sampled_from(CHAT), cuts=CUTS, after=st.sampled_from(AFTER), mode=st.sampled_from(MODES))
def test_recordings_of_chat_keep_their_text_whatever_way_they_are_cut(
    recording: Recording, cuts: list[int], after: Any, mode: Delivery
) -> None:
    check_chat(recording, mode, after, cuts=cuts)


def check_chat(recording: Recording, mode: Delivery, after: Any, *, cuts: list[int]) -> None:
    taken = Taken()
    out = delivered(recording.body, mode, Dialect.CHAT, cuts=cuts, taken=taken, after=after())
    sent, seen = read_chat(recording.body), read_chat(out, names=NAMES.get(mode, ("reasoning",)))
    check_text(mode, seen, sent, taken=taken)
    check_rest(seen, sent)
    check_names(mode, out)
    if mode is Delivery.EVENTS:
        check_events(out)
    if after is ReportInUsage:
        for it in seen.usages:
            it.pop("pacekeeper", None)
    if after in {Untouched, ReportInUsage}:
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


@pytest.mark.parametrize("mode", sorted(HIDING))
@pytest.mark.parametrize("cuts", [0, 3, 40])
def test_every_typed_recording_loses_its_reasoning_and_nothing_else(mode: Delivery, cuts: int) -> None:
    for recording in TYPED:
        check_typed(recording, mode, cuts=some_cuts(recording, mode, cuts))


@settings(max_examples=150, deadline=None)
@given(recording=st.sampled_from(TYPED), cuts=CUTS)
def test_typed_recordings_keep_the_rest_whatever_way_they_are_cut(recording: Recording, cuts: list[int]) -> None:
    check_typed(recording, Delivery.DROP, cuts=cuts)


def check_typed(recording: Recording, mode: Delivery, *, cuts: list[int]) -> None:
    assert recording.dialect is not None
    taken = Taken()
    out = delivered(recording.body, mode, recording.dialect, cuts=cuts, taken=taken)
    sent, seen = read_typed(recording.body), read_typed(out)
    check_text(mode, seen, sent, taken=taken)
    check_rest(seen, sent)
    assert seen.usages == sent.usages
    values = [value for _, value in payloads(out)]
    assert all(name == value["type"] for name, value in payloads(out) if "type" in value)
    assert sum("type" not in value for value in values) == sum(
        "type" not in value for _, value in payloads(recording.body)
    )
    if not recording.is_tail:
        check_numbers([value for value in values if "type" in value])


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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("recording", BODIES, ids=str)
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
    dialect=st.sampled_from([Dialect.CHAT, Dialect.COMPLETIONS, Dialect.RESPONSES, Dialect.MESSAGES]),
    mode=st.sampled_from(MODES),
    tags=st.sampled_from([None, ThinkTags(), ThinkTags(opened=True)]),
)
def test_anything_goes_through_without_a_failure(
    data: bytes, dialect: Dialect, mode: Delivery, tags: ThinkTags | None
) -> None:
    edit = deliver_stream(mode, dialect, tags=tags, after=UsageStripped(), take=lambda *_: None, side=None)
    assert isinstance(played(edit, [data]), bytes)
    assert isinstance(deliver_body(data.removeprefix(b"data: "), mode, dialect, tags=tags, take=lambda *_: None), bytes)
