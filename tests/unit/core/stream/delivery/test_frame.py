"""Events taken apart and put together: only the data changes."""

from __future__ import annotations

import pytest
from msgspec import Raw

from gateway.core.stream.delivery.frame import is_given, named, quoted, take_apart, text_inside


@pytest.mark.parametrize(
    "event, again",
    [
        (b"data: {}\n\n", b"data: x\n\n"),
        (b"data:{}\n\n", b"data: x\n\n"),
        (b"event: e\ndata: {}\n\n", b"event: e\ndata: x\n\n"),
        (b"event: e\r\ndata: {}\r\n\r\n", b"event: e\ndata: x\r\n\r\n"),
        (b": c\nid: 7\ndata: {\ndata: }\nretry: 5\n\n\n", b": c\nid: 7\nretry: 5\ndata: x\n\n\n"),
    ],
)
def test_everything_but_data_stays(event: bytes, again: bytes) -> None:
    frame = take_apart(event)
    assert frame is not None
    assert frame.data.replace(b"\n", b"") == b"{}"
    assert frame.with_data(b"x") == again


@pytest.mark.parametrize("event", [b": data\n\n", b"\n\n", b"event: data\n\n", b""])
def test_an_event_without_data_has_no_parts(event: bytes) -> None:
    assert take_apart(event) is None


def test_a_name_goes_before_an_event_that_has_none() -> None:
    assert named("content", b"data: x\n\n") == b"event: content\ndata: x\n\n"
    for event in (b"event: e\ndata: x\n\n", b"id: 1\nevent: e\ndata: x\n\n"):
        assert named("content", event) == event


def test_strings_are_cut_and_joined_as_json_text() -> None:
    fields = {"a": Raw(b'"x\\n"'), "b": Raw(b"null"), "c": Raw(b"[1]")}
    assert [text_inside(fields, name) for name in "abcd"] == [rb"x\n", b"", b"", b""]
    assert quoted(b"<think>", rb"x\n") == Raw(rb'"<think>x\n"')
    assert [is_given(fields, name) for name in "abcd"] == [True, False, True, False]
