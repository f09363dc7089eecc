"""Framing against the standard's own words: any bytes, any cut, any limit."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.stream.sse import Event, EventFramer
from tests.fakes.backend import cut

ATOMS = st.sampled_from(
    [
        b"\n",
        b"\n",
        b"\n\n",
        b"\r",
        b"\r\n",
        b"data: ",
        b"data:",
        b"data",
        b"event: ",
        b"event:a",
        b": ",
        b":",
        b"id: 1",
        b" ",
        b"x",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\x00",
        b"{}",
    ]
)
STREAM_BYTES = st.lists(ATOMS, max_size=40).map(b"".join)
LF_ONLY = STREAM_BYTES.map(lambda data: data.replace(b"\r", b""))


def by_the_standard(data: bytes) -> list[Event]:
    """Parse a whole stream line by line, as the HTML standard describes it, with no thought of speed or memory."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = re.split(rb"\r\n|\n|\r", data)[:-1]  # what follows the last line end is no line yet
    events: list[Event] = []
    name, buffer = "", b""
    for line in lines:
        if line == b"":
            if buffer:
                events.append((name, buffer.removesuffix(b"\n")))
            name, buffer = "", b""
            continue
        field, colon, value = line.partition(b":")
        if colon and not field:
            continue
        value = value.removeprefix(b" ")
        if field == b"data":
            buffer += value + b"\n"
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return events


def framed(pieces: list[bytes], limit: int) -> tuple[list[Event], int]:
    framer = EventFramer(limit)
    events: list[Event] = []
    for piece in pieces:
        single = framer.single(piece)
        events.extend(framer.feed(piece) if single is None else [("", single)])
    return events, framer.oversize


@settings(max_examples=1500, deadline=None)
@given(data=st.one_of(STREAM_BYTES, LF_ONLY), cuts=st.lists(st.integers(0, 200), max_size=10))
def test_events_are_those_of_the_standard_for_every_cut(data: bytes, cuts: list[int]) -> None:
    assert framed(cut(data, cuts), 10_000) == (by_the_standard(data), 0)


@settings(max_examples=1000, deadline=None)
@given(
    data=st.one_of(STREAM_BYTES, LF_ONLY),
    cuts=st.lists(st.integers(0, 200), max_size=10),
    limit=st.integers(1, 30),
)
def test_what_is_skipped_for_its_size_does_not_depend_on_the_cut(data: bytes, cuts: list[int], limit: int) -> None:
    # A blank line at the end, so that nothing is left whose size is not decided yet.
    whole = data + b"\n\n\n"
    expected = framed([whole], limit)
    assert framed(cut(whole, cuts), limit) == expected
    assert framed(cut(whole, range(len(whole))), limit) == expected
    allowed = by_the_standard(whole)
    assert all(event in allowed for event in expected[0])
    assert len(expected[0]) + expected[1] >= len(allowed)
    assert all(len(payload) <= limit for _, payload in expected[0])


@settings(max_examples=300, deadline=None)
@given(
    payloads=st.lists(
        st.binary(min_size=1, max_size=60).filter(lambda data: not re.search(rb"[\r\n]", data)), max_size=8
    ),
    size=st.integers(1, 100),
)
def test_every_payload_comes_back(payloads: list[bytes], size: int) -> None:
    data = b"".join(b"data: " + payload + b"\n\n" for payload in payloads)
    expected: list[Event] = [("", payload) for payload in payloads]
    assert framed(cut(data, range(0, len(data), size)), 1000) == (expected, 0)
