"""What a stencil says of an event without parsing it is what the parser says, for whatever an engine may send."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.stream.edit import FINISH_NEEDLES, USAGE_NEEDLES
from gateway.core.stream.http1 import SHORT_MAX_BYTES
from gateway.core.stream.stencil import Stencil
from gateway.core.stream.summary import Dialect, Flag
from gateway.core.stream.tap import Tap
from gateway.core.stream.timeline import Timeline
from tests.fakes.engine_events import DONE, STREAM, chat, role, usage

NEEDLES = (*USAGE_NEEDLES, *FINISH_NEEDLES)
BEGUN = '{"id":"c","choices":[{"index":0,"delta":'
OVER = ',"logprobs":null,"finish_reason":null}]}'


def _shape(form: str) -> Callable[[str], str]:
    return lambda text: BEGUN + form.replace("TEXT", text) + OVER


SHAPES = [
    _shape(form)
    for form in (
        '{"content":"TEXT"}',
        '{"reasoning":"TEXT"}',
        '{"reasoning_content":"TEXT"}',
        '{"reasoning":"TEXT","reasoning_content":"TEXT"}',
        '{"content":"TEXT","reasoning":null}',
        '{"content":"TEXT","reasoning":"TEXT"}',
        '{"content": "TEXT"}',
        '{"x":{"content":"TEXT"},"content":"same"}',
        '{"x":"\\\\"content\\\\":\\\\"TEXT","content":"TEXT"}',
        '{"content":"first","content":"TEXT"}',
        '{"content":"TEXT","content":"last"}',
        '{"content":"TEXT","tool_calls":[{"function":{"arguments":"TEXT"}}]}',
        '{"content":"TEXT"},"token_ids":[1]',
        '{"content":"TEXT"},"finish_reason":"stop"',
        '{"content":"TEXT"},"usage":{"completion_tokens":3}',
    )
] + [
    lambda text: BEGUN.replace("0", "1") + '{"content":"' + text + '"}' + OVER,
    lambda text: '{"choices":[{"index":0,"text":"' + text + '","finish_reason":null}]}',
    lambda text: '{"choices":[{"index":0,"text":"' + text + '","finish_reason":null}],"usage":{"completion_tokens":9}}',
]
TEXTS = st.one_of(
    st.sampled_from(["a", " step", "same", "~", "1", "x" * 40, "first", "last"]),
    st.text(max_size=8).map(lambda text: json.dumps(text)[1:-1]),
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)[1:-1]),
    st.text(alphabet='"\\:,{}[]~a\x01\n', max_size=6),  # mostly no JSON any more
    st.sampled_from(
        ['"},"finish_reason":"stop', '","usage":{"completion_tokens":7},"x":"', "\\u00e9", "\\", '"choices":[]']
    ),
)
EVENTS = st.lists(st.tuples(st.sampled_from(SHAPES), TEXTS, st.integers(1, 6)), min_size=1, max_size=8)


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _state(tap: Tap) -> dict[str, object]:
    """All that the tap has of the stream's time and text: a summary does not show each length."""
    timeline = tap._timeline
    state = {name: getattr(timeline, name) for name in Timeline.__slots__ if name != "gaps"}
    return state | {"gaps": timeline.gaps._buckets, "summary": tap.close(100.0)}


def _read(events: list[bytes], *, dialect: Dialect, batch: int, ask: bool) -> tuple[dict[str, object], int]:
    """Read ``events`` as the relay has them read; returns what came of it and how many were never parsed."""
    tap = Tap(dialect, STREAM, max_event_bytes=1 << 20)
    tap.feed(role(), 0.5)
    pending: list[tuple[bytes | int, float]] = []
    known = 0
    for number, event in enumerate(events):
        data = _chunk(event)
        size = tap.stencil.fits(data, data.index(b"\n") + 1) if ask and tap.stencil.passable else 0
        if size:
            known += 1
            assert not any(needle in data for needle in NEEDLES)
        pending.append((size or data, 1.0 + number))
        if len(pending) == batch:
            tap.feed_chunks(pending)
            pending.clear()
            tap.stencil.clear(NEEDLES)
    tap.feed_chunks(pending)
    tap.feed(chat(finish="stop") + usage(40) + DONE, 100.0)
    return _state(tap), known


def _parsed(events: list[bytes], dialect: Dialect) -> dict[str, object]:
    tap = Tap(dialect, STREAM, max_event_bytes=1 << 20)
    tap.feed(role(), 0.5)
    for number, event in enumerate(events):
        tap.feed(event, 1.0 + number)
    tap.feed(chat(finish="stop") + usage(40) + DONE, 100.0)
    return _state(tap)


@settings(max_examples=600, deadline=None)
@given(
    kinds=EVENTS,
    batch=st.integers(1, 4),
    ask=st.booleans(),
    dialect=st.sampled_from([Dialect.CHAT, Dialect.COMPLETIONS]),
)
def test_what_is_known_is_that_of_parsing_every_event(
    kinds: list[tuple[Callable[[str], str], str, int]], batch: int, ask: bool, dialect: Dialect
) -> None:
    events = [
        f"data: {shape(text + ('' if copy == 0 else str(copy)))}\n\n".encode("utf-8", "surrogatepass")
        for shape, text, copies in kinds
        for copy in range(copies)
    ]
    events = [event for event in events if event.count(b"\n") == 2]  # others are more than one line: not of this kind
    assert _read(events, dialect=dialect, batch=batch, ask=ask)[0] == _parsed(events, dialect)


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content"])
def test_the_usual_stream_is_parsed_once_a_batch_and_no_more(field: str) -> None:
    events = [f'data: {BEGUN}{{"{field}":" w{number}"}}{OVER}\n\n'.encode() for number in range(64)]
    state, known = _read(events, dialect=Dialect.CHAT, batch=8, ask=True)
    assert known == 64 - 8
    assert state == _parsed(events, Dialect.CHAT)


def test_a_text_of_another_field_is_not_taken_for_the_channel_s() -> None:
    forms = ['{"x":{"content":"same"},"content":"same"}', '{"x":{"content":"other"},"content":"same"}']
    events = [f"data: {BEGUN}{form}{OVER}\n\n".encode() for form in (*forms, *forms)]
    assert _read(events, dialect=Dialect.CHAT, batch=1, ask=False)[0] == _parsed(events, Dialect.CHAT)


def test_a_change_of_channel_costs_one_batch() -> None:
    texts = ["reasoning"] * 40 + ["content"] * 40
    events = [f'data: {BEGUN}{{"{field}":" w"}}{OVER}\n\n'.encode() for field in texts]
    state, known = _read(events, dialect=Dialect.CHAT, batch=8, ask=True)
    assert known == 80 - 16
    assert state == _parsed(events, Dialect.CHAT)


def test_events_that_differ_in_more_than_their_text_do_not_cost_a_lesson_each() -> None:
    tap = Tap(Dialect.CHAT, STREAM, max_event_bytes=1 << 20)
    for number in range(100):
        event = f'data: {BEGUN}{{"content":"w"}},"token_ids":[{number}]}}]}}\n\n'.encode()
        tap.feed_chunks([(_chunk(event), float(number))])
    assert not tap.stencil.teachable
    assert tap.close(100.0).chunks == 100


BYTES = st.text(alphabet='"a:~', max_size=4).map(str.encode)
PLAIN = st.text(alphabet="a:~", min_size=1, max_size=5).map(str.encode)


def _learnt(lead: bytes, end: bytes) -> Stencil:
    stencil = Stencil(1 << 20)
    stencil.learn(lead + b'"f":"zz"' + end, b"f", "zz", reasoning=False, same=lambda other, text: True)
    return stencil


@settings(max_examples=800, deadline=None)
@given(data=st.data(), text=PLAIN, lead=BYTES, end=BYTES)
def test_what_is_passable_holds_no_needle_whatever_its_text(
    data: st.DataObject, text: bytes, lead: bytes, end: bytes
) -> None:
    stencil = _learnt(lead, end)
    event = b"data: " + lead + b'"f":"' + text + b'"' + end + b"\n\n"
    chunk = _chunk(event)
    assert stencil.fits(chunk, chunk.index(b"\n") + 1) == len(text)
    start = data.draw(st.integers(0, len(event) - 1))
    needle = event[start : data.draw(st.integers(start + 1, len(event)))].rstrip(b"\n") or b"d"
    stencil.clear([b'"no":', needle])
    assert not stencil.passable


@settings(max_examples=200, deadline=None)
@given(needle=st.text(alphabet='"a:~', min_size=1, max_size=6).map(str.encode), lead=BYTES, end=BYTES)
def test_what_is_not_passable_could_hold_a_needle(needle: bytes, lead: bytes, end: bytes) -> None:
    """Else the shortcut would be lost where nothing speaks against it."""
    stencil = _learnt(lead, end)
    stencil.clear([needle])
    if not stencil.passable:
        before, after = b"data: " + lead + b'"f":"', b'"' + end + b"\n\n"
        texts = {part for part in needle.split(b'"') if part} | {needle.replace(b'"', b"") or b"a"}
        padded = {b"a" + text for text in texts} | {text + b"a" for text in texts} | texts | {b"a"}
        assert any(needle in before + text + after for text in padded)


def test_a_new_lesson_is_not_passable_before_it_is_cleared() -> None:
    stencil = _learnt(b"", b"")
    stencil.clear([b'"no":'])
    passable_before = stencil.passable
    assert passable_before
    stencil.learn(b'"f":"x"y', b"f", "x", reasoning=False, same=lambda other, text: True)
    assert not stencil.passable
    stencil.clear([b"y"])
    assert not stencil.passable


def test_vllm_s_events_are_passable() -> None:
    tap = Tap(Dialect.CHAT, STREAM, max_event_bytes=1 << 20)
    tap.feed(role() + chat(content="a"), 1.0)
    tap.stencil.clear(NEEDLES)
    assert tap.stencil.passable
    tap.stencil.clear((*NEEDLES, b"data"))
    assert not tap.stencil.passable


def test_events_near_the_limit_are_left_to_the_parser() -> None:
    stencil = Stencil(SHORT_MAX_BYTES)
    stencil.learn(b'{"f":"zz"}', b"f", "zz", reasoning=False, same=lambda other, text: True)
    chunk = _chunk(b'data: {"f":"zz"}\n\n')
    assert stencil.fits(chunk, chunk.index(b"\n") + 1) == 0


def test_a_defect_costs_the_numbers_of_the_stream_only() -> None:
    tap = Tap(Dialect.CHAT, STREAM, max_event_bytes=1 << 20)
    tap.feed(role() + chat(content="a"), 1.0)
    broken = cast(bytes, None)
    tap.feed_chunks([(broken, 2.0)])
    tap.feed_chunks([(1, 3.0)])
    summary = tap.close(3.0)
    assert Flag.TAP_DISABLED in summary.flags
    assert summary.chunks == 1
