"""The events of a side stream and what is kept of them."""

from __future__ import annotations

import json

import pytest

from gateway.core.stream.delivery.delivered import deliver_stream
from gateway.core.stream.delivery.mode import Delivery
from gateway.core.stream.delivery.side import SideBuffer, SideEvents
from gateway.core.stream.edit import Untouched
from gateway.core.stream.summary import Dialect
from tests.fakes.delivered import Taken
from tests.fakes.engine_events import chat


@pytest.mark.parametrize(
    "first",
    [
        b'data: {"id":"i","created":5,"model":"m","choices":[]}\n\n',
        b': c\n\nevent: x\ndata: {"type":"response.created","response":{"id":"i","created_at":5,"model":"m"}}\n\n',
        b'data: nonsense\n\ndata: {"type":"message_start","message":{"id":"i","created":5,"model":"m"}}\n\n',
        b'{"id":"i","created":5,"model":"m","choices":[]}',
    ],
)
def test_each_event_is_a_chunk_of_chat_with_the_head_of_its_answer(first: bytes) -> None:
    events = SideEvents()
    events.begin(first)
    made = events.event(3, rb"a\n")
    assert made.endswith(b"\n\n")
    assert json.loads(made[6:]) == {
        "id": "i",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "m",
        "choices": [{"index": 3, "delta": {"reasoning": "a\n"}, "finish_reason": None}],
    }


def test_an_answer_without_a_head_has_valid_chunks_all_the_same() -> None:
    events = SideEvents()
    events.begin(b": nothing\n\ndata: [DONE]\n\n")
    assert json.loads(events.event(0, b"a")[6:])["object"] == "chat.completion.chunk"
    events.begin(b"data: {}\n\n")
    assert json.loads(events.event(0, b"a")[6:])["id"] == ""


def test_the_edit_tells_its_side_how_the_stream_begins() -> None:
    events = SideEvents()
    deliver_stream(Delivery.SIDE, Dialect.CHAT, tags=None, after=Untouched(), take=Taken(), side=events).begin(
        chat(content="").replace(b"{", b'{"id":"i",', 1)
    )
    assert json.loads(events.event(0, b"a")[6:])["id"] == "i"


def test_the_oldest_events_go_first_and_are_counted() -> None:
    buffer = SideBuffer(10)
    for event in (b"aaaa", b"bbbb", b"cccc"):
        buffer.add(event)
    assert buffer.kept() == b": 1 earlier events are not kept any more\n\nbbbbcccc"
    assert (buffer.size_bytes, buffer.gone) == (8, 1)
    buffer.add(b"x" * 11)
    assert buffer.kept() == b": 4 earlier events are not kept any more\n\n"


def test_what_fits_is_kept_whole() -> None:
    buffer = SideBuffer(8)
    buffer.add(b"aaaa")
    buffer.add(b"bbbb")
    assert buffer.kept() == b"aaaabbbb"
