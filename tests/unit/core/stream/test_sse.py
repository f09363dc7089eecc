"""Framing of server-sent events: what is an event, whatever the cut, the line ends and the size."""

from __future__ import annotations

import pytest

from gateway.core.stream.sse import Event, EventFramer, has_field

LIMIT = 1000

CASES: dict[str, tuple[bytes, list[Event]]] = {
    "one event": (b'data: {"a":1}\n\n', [("", b'{"a":1}')]),
    "two events": (b"data: 1\n\ndata: 2\n\n", [("", b"1"), ("", b"2")]),
    "a name": (b"event: ping\ndata: 1\n\n", [("ping", b"1")]),
    "a name after its data": (b"data: 1\nevent: ping\n\n", [("ping", b"1")]),
    "a name is of one event only": (b"event: a\ndata: 1\n\ndata: 2\n\n", [("a", b"1"), ("", b"2")]),
    "a name without data is no event": (b"event: ping\n\ndata: 1\n\n", [("", b"1")]),
    "the last name counts": (b"event: a\nevent: b\ndata: 1\n\n", [("b", b"1")]),
    "no space after the colon": (b"data:1\n\nevent:a\ndata:2\n\n", [("", b"1"), ("a", b"2")]),
    "only one space is cut off": (b"data:  1\n\n", [("", b" 1")]),
    "several data lines": (b"data: 1\ndata: 2\ndata:\n\n", [("", b"1\n2\n")]),
    "a named event of several data lines": (b"event: a\ndata: 1\ndata: 2\n\n", [("a", b"1\n2")]),
    "empty data": (b"data:\n\ndata\n\n", [("", b""), ("", b"")]),
    "comments": (b": keep-alive\n\n:\n: a\ndata: 1\n: b\n\n", [("", b"1")]),
    "unknown fields": (b"id: 7\nretry: 10\ndata: 1\nfoo\n\n", [("", b"1")]),
    "more blank lines than needed": (b"\n\n\ndata: 1\n\n\n\ndata: 2\n\n", [("", b"1"), ("", b"2")]),
    "CRLF": (b"data: 1\r\n\r\nevent: a\r\ndata: 2\r\n\r\n", [("", b"1"), ("a", b"2")]),
    "CR": (b"data: 1\r\rdata: 2\r\r", [("", b"1"), ("", b"2")]),
    "line ends mixed": (
        b"data: 1\r\n\ndata: 2\n\rdata: 3\r\r\ndata: 4\n\n",
        [("", b"1"), ("", b"2"), ("", b"3"), ("", b"4")],
    ),
    "CR inside data ends the line": (b"data: 1\r2\n\n", [("", b"1")]),
    "CR inside the second of two blocks": (b"data: 1\n\ndata: 2\rdata: 3\n\n", [("", b"1"), ("", b"2\n3")]),
    "blank lines and comments without number": (
        b"\n" * 99 + b": a\n\n" * 9 + b":\n: b\n\n" + b"\r\n" * 9 + b"data: 1\n\n",
        [("", b"1")],
    ),
    "a byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [("", b"1")]),
    "a byte order mark later is a part of a field": (
        b"data: 0\n\n\xef\xbb\xbfdata: 1\n\ndata: 2\n\n",
        [("", b"0"), ("", b"2")],
    ),
    "a byte order mark before a blank line": (b"\xef\xbb\xbf\ndata: 1\n\n", [("", b"1")]),
    "NUL and invalid UTF-8 are data": (b"data: \x00\xff\n\n", [("", b"\x00\xff")]),
    "an invalid name is replaced": (b"event: \xff\ndata: 1\n\n", [("�", b"1")]),
    "an unfinished event is none": (b"data: 1\n\ndata: 2\n", [("", b"1")]),
    "nothing": (b"", []),
}


def frame(data: bytes, *, size: int | None = None, limit: int = LIMIT) -> tuple[list[Event], int]:
    """Frame ``data`` in pieces of ``size``, after trying each piece as a single event as the tap does."""
    framer = EventFramer(limit)
    events: list[Event] = []
    for start in range(0, len(data), size or max(len(data), 1)):
        piece = data[start : start + size] if size else data
        single = framer.single(piece)
        events.extend(framer.feed(piece) if single is None else [("", single)])
    return events, framer.oversize


@pytest.mark.parametrize("data,expected", CASES.values(), ids=CASES.keys())
def test_a_stream_has_these_events_however_it_is_cut(data: bytes, expected: list[Event]) -> None:
    assert frame(data) == (expected, 0)
    for size in range(1, len(data)):
        assert frame(data, size=size) == (expected, 0), size


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"], ids=["CRLF", "CR"])
@pytest.mark.parametrize("data,expected", CASES.values(), ids=CASES.keys())
def test_every_line_end_means_the_same(data: bytes, expected: list[Event], line_end: bytes) -> None:
    if b"\r" not in data:
        data = data.replace(b"\n", line_end)
        for size in (None, 1, 2, 3, 5):
            assert frame(data, size=size) == (expected, 0)


@pytest.mark.parametrize("data,expected", CASES.values(), ids=CASES.keys())
def test_the_same_holds_after_other_events(data: bytes, expected: list[Event]) -> None:
    if not data.startswith(b"\xef\xbb\xbf"):
        before = b"data: before\n\n"
        for size in (None, 1, 3, 14):
            assert frame(before + data, size=size)[0] == [("", b"before"), *expected]


def test_nothing_between_the_halves_of_a_line_end_changes_nothing() -> None:
    framer = EventFramer(LIMIT)
    heard = [framer.feed(data) for data in (b"data: 1\r", b"", b"\ndata: 2\r\n", b"\r\n")]
    assert heard == [[], [], [], [("", b"1\n2")]]


def test_a_single_event_is_recognised_only_when_nothing_is_held() -> None:
    framer = EventFramer(LIMIT)
    assert framer.single(b"data: 1\n\n") is None, "the first line may begin with a byte order mark"
    framer.feed(b"data: 1\n\n")
    assert framer.single(b"data: 2\n\n") == b"2"
    framer.feed(b"data: 3")
    assert framer.single(b"data: 4\n\n") is None
    assert framer.feed(b"\n\n") == [("", b"3")]
    assert framer.single(b"data: 5\n\n") == b"5"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"data: ",
        b"data: 1\n",
        b"data: 1\n\n\n",
        b"data: 1\n2\n\n",
        b"data:1\n\n",
        b"data: \r\n\n",
        b"event: a\n\n",
    ],
)
def test_anything_else_is_not_a_single_event(data: bytes) -> None:
    framer = EventFramer(LIMIT)
    framer.feed(b"data: 1\n\n")
    assert framer.single(data) is None


# --- size ---------------------------------------------------------------------------------------------------------

OVERSIZE = {
    "one line": b"data: " + b"x" * 100,
    "several lines": b"data: " + b"\ndata: ".join([b"x" * 30] * 3),
    "a name and data": b"event: " + b"x" * 50 + b"\ndata: " + b"x" * 50,
    "a comment": b": " + b"x" * 100,
    "an unknown field": b"id: " + b"x" * 100,
}


@pytest.mark.parametrize("size", [None, 1, 7, 64])
@pytest.mark.parametrize("block", OVERSIZE.values(), ids=OVERSIZE.keys())
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_an_event_over_the_limit_is_skipped_and_counted(block: bytes, size: int | None, line_end: bytes) -> None:
    data = b"data: before\n\n" + block + b"\ndata: rest of it\n\ndata: after\n\n"
    events, oversize = frame(data.replace(b"\n", line_end), size=size, limit=99)
    assert events == [("", b"before"), ("", b"after")]
    assert oversize == 1


@pytest.mark.parametrize("size", [None, 1, 7])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_an_event_at_the_limit_passes(size: int | None, line_end: bytes) -> None:
    data = b"data: 1\n\ndata: " + b"x" * 94 + b"\n\nevent: a\ndata: " + b"x" * 86 + b"\n\n"
    events, oversize = frame(data.replace(b"\n", line_end), size=size, limit=100)
    assert events == [("", b"1"), ("", b"x" * 94), ("a", b"x" * 86)]
    assert oversize == 0


def test_comments_are_no_part_of_an_event_s_size() -> None:
    data = b"data: 1\n" + b": quite a long comment\n" * 100 + b"data: 2\n\n"
    assert frame(data, limit=40) == ([("", b"1\n2")], 0)


def test_an_endless_event_is_counted_once_and_not_held() -> None:
    framer = EventFramer(LIMIT)
    for _ in range(1000):
        assert framer.feed(b"x" * 1000) == []
    assert framer.oversize == 1
    assert framer.feed(b"\n\ndata: 1\n\n") == [("", b"1")]


def test_endless_short_lines_are_one_event_over_the_limit() -> None:
    framer = EventFramer(LIMIT)
    for _ in range(1000):
        assert framer.feed(b"data: 1\n") == []
    assert framer.oversize == 1
    assert framer.feed(b"\ndata: 1\n\n") == [("", b"1")]


def test_a_large_event_in_crumbs_is_put_together() -> None:
    framer = EventFramer(1 << 20)
    payload = b"y" * 50_000
    data = b"data: 1\n\ndata: " + payload + b"\n\n"
    events = [event for start in range(0, len(data), 100) for event in framer.feed(data[start : start + 100])]
    assert events == [("", b"1"), ("", payload)]


@pytest.mark.parametrize("data", [b"", b"\n\n", b": a\n\n", b":\r\n\r\n", b": a\n: data: 1\n\n\n: b\r\r"])
def test_comments_and_blank_lines_are_no_fields(data: bytes) -> None:
    assert not has_field(data)


@pytest.mark.parametrize("data", [b"data", b": a\ndata: 1\n\n", b": a\r\n\r\nid: 1", b"\n\n\nx", b": a\rdata:1\r\r"])
def test_a_field_is_found_behind_comments(data: bytes) -> None:
    assert has_field(data)
