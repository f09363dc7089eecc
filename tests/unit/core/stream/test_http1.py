"""Responses as bytes: heads, the three kinds of body, and every way of cutting them; httptools is the reference."""

from __future__ import annotations

import itertools

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.stream.http1 import (
    MAX_HEAD_BYTES,
    MAX_SIZE_LINE_BYTES,
    SHORT_MAX_BYTES,
    BadFraming,
    ChunkedBody,
    OpenBody,
    SizedBody,
    body_of,
    chunk,
    ends_event,
    last_event_end,
    parse_head,
    short_beginnings,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_head_is_read_with_lower_case_names_in_order() -> None:
    parsed = parse_head(b"HTTP/1.1 404 Not Found\r\nDate: now\r\nX-A:  1 \r\nContent-Length: 5\r\n\r\nhello")
    assert parsed is not None
    head, offset = parsed
    assert (head.status, head.reason, head.length, head.chunked, head.persistent) == (404, b"Not Found", 5, False, True)
    assert head.headers == ((b"date", b"now"), (b"x-a", b"1"), (b"content-length", b"5"))
    assert offset == len(b"HTTP/1.1 404 Not Found\r\nDate: now\r\nX-A:  1 \r\nContent-Length: 5\r\n\r\n")


@pytest.mark.parametrize("size", range(1, len(OK)))
def test_a_head_that_is_not_whole_needs_more(size: int) -> None:
    assert parse_head(OK[:size]) is None


def test_interim_heads_are_skipped() -> None:
    parsed = parse_head(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK)
    assert parsed is not None
    assert parsed[0].status == 200
    assert parsed[0].event_stream
    assert parse_head(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2") is None


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\nX-Evil: 1\r\n\r\n",
        b"HTTP/1.1 099 Low\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"SSH-2.0",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\nx: injected\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\rx\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(BadFraming):
        parse_head(data)


@pytest.mark.parametrize(
    "lines, persistent",
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_whether_a_connection_can_be_used_again(lines: bytes, persistent: bool) -> None:
    parsed = parse_head(lines + b"\r\n")
    assert parsed is not None
    assert parsed[0].persistent is persistent


@pytest.mark.parametrize(
    "lines, kind",
    [
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", ChunkedBody),
        (b"Content-Length: 5\r\n", SizedBody),
        (b"", OpenBody),
    ],
)
def test_the_body_that_a_head_promises(lines: bytes, kind: type) -> None:
    parsed = parse_head(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n")
    assert parsed is not None
    assert isinstance(body_of(parsed[0]), kind)


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_end_at_once(status: int) -> None:
    parsed = parse_head(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
    assert parsed is not None
    assert body_of(parsed[0]).ended


def test_plain_chunks_may_be_forwarded_as_they_came() -> None:
    body = ChunkedBody()
    assert body.feed(b"5\r\nhello\r\n3\r\nabc\r\n") == [b"hello", b"abc"]
    assert body.raw == b"5\r\nhello\r\n3\r\nabc\r\n"
    assert body.feed(b"2\r\nhi\r\n4\r\nha") == [b"hi"]
    assert (body.raw, body.held_bytes) == (b"2\r\nhi\r\n", 5)
    assert body.feed(b"lf\r\n0\r\n\r\n") == [b"half"]
    assert (body.raw, body.ended, body.excess) == (b"4\r\nhalf\r\n", True, False)


def test_extensions_are_legal_and_not_forwarded() -> None:
    body = ChunkedBody()
    assert body.feed(b"5 ;name=value\r\nhello\r\n") == [b"hello"]
    assert body.raw is None


def test_trailers_end_the_body_and_are_dropped() -> None:
    body = ChunkedBody()
    assert body.feed(b"1\r\na\r\n0\r\nx-sum: 1\r\n") == [b"a"]
    assert not body.ended
    assert body.feed(b"\r\n") == []
    assert body.ended


def test_bytes_after_the_end_are_noticed() -> None:
    body = ChunkedBody()
    body.feed(b"0\r\n\r\nHTTP/1.1 200")
    assert (body.ended, body.excess) == (True, True)
    sized = SizedBody(2)
    assert sized.feed(b"abc") == [b"ab"]
    assert (sized.ended, sized.excess, sized.feed(b"")) == (True, True, [])


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\nx",
        b"\r\n",
        b"-5\r\nhello",
        b"+5\r\nhello",
        b"0x5\r\nhello",
        b"5_0\r\nhello",
        b" 5\r\nhello",
        b"5\r\nhelloXX",
        b"1234567890123456\r\n",
        b"5" * (MAX_HEAD_BYTES + 1),
        b"0\r\nx: " + b"y" * (MAX_HEAD_BYTES + 1),
    ],
)
def test_framing_that_cannot_be_followed_is_refused(data: bytes) -> None:
    with pytest.raises(BadFraming):
        ChunkedBody().feed(data)


def test_a_long_size_line_waits_until_it_is_too_long() -> None:
    body = ChunkedBody()
    assert body.feed(b"5;" + b"x" * MAX_SIZE_LINE_BYTES) == []
    assert body.held_bytes > MAX_SIZE_LINE_BYTES


def test_an_open_body_ends_with_its_connection() -> None:
    body = OpenBody()
    assert body.feed(b"abc") == [b"abc"]
    assert body.feed(b"") == []
    assert not body.ended
    body.finish()
    assert body.ended


def test_a_read_that_begins_as_its_length_says_is_one_whole_chunk() -> None:
    beginnings = short_beginnings(b"\r\ndata: ")
    lengths = set()
    for size in range(6, SHORT_MAX_BYTES):
        payload = b"data: " + b"x" * (size - 6)
        read = b"%x\r\n%b\r\n" % (size, payload)
        if len(read) <= SHORT_MAX_BYTES:
            lengths.add(len(read))
            assert read.startswith(beginnings[len(read)])
            assert ChunkedBody().feed(read) == [payload]
    for length in set(range(SHORT_MAX_BYTES + 1)) - lengths:
        # Too short for the opening, or between two widths of the size line.
        assert len(beginnings[length]) + 2 > length or beginnings[length] == b"\0"


@pytest.mark.parametrize("line", [b"", b"0", b"01a", b"+1a", b"0x1a", b"1_a", b" 1a", b"1a;x", b"1A", b"1b"])
def test_no_other_size_line_passes_for_it(line: bytes) -> None:
    read = line + b"\r\n" + b"data: " + b"x" * (0x1A - 6) + b"\r\n"
    assert not read.startswith(short_beginnings(b"\r\ndata: ")[len(read)])


@pytest.mark.parametrize(
    "body, end",
    [
        (b"a\n\nb", 3),
        (b"a\r\n\r\nb", 5),
        (b"a\n\r\nb", 4),
        (b"a\r\rb", 3),
        (b"a\n\nb\r\n\r\n", 8),
        (b"ab\n", 0),
        (b"", 0),
    ],
)
def test_where_the_last_whole_event_ends(body: bytes, end: int) -> None:
    assert last_event_end(body) == end
    assert ends_event(body) is (0 < end == len(body))


def test_an_empty_chunk_would_end_the_body_and_is_never_made() -> None:
    assert (chunk(b""), chunk(b"hello")) == (b"", b"5\r\nhello\r\n")


class Reference:
    """What httptools makes of the same bytes."""

    def __init__(self) -> None:
        self.body = b""
        self.ended = False
        self.parser = httptools.HttpResponseParser(self)
        self.parser.feed_data(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.ended = True


payloads = st.lists(st.binary(min_size=1, max_size=300), max_size=6)


@given(payloads=payloads, cuts=st.lists(st.integers(0, 2000), max_size=8), extension=st.sampled_from([b"", b";a=b"]))
def test_any_cut_gives_what_httptools_gives(payloads: list[bytes], cuts: list[int], extension: bytes) -> None:
    wire = b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in payloads) + b"0\r\n\r\n"
    reference, body, seen, raws = Reference(), ChunkedBody(), b"", b""
    edges = [0, *sorted(c for c in cuts if c < len(wire)), len(wire)]
    for start, stop in itertools.pairwise(edges):
        reference.parser.feed_data(wire[start:stop])
        seen += b"".join(body.feed(wire[start:stop]))
        raws += body.raw or b""
    assert seen == reference.body == b"".join(payloads)
    assert body.ended is reference.ended is True
    assert raws == (b"" if extension else wire.removesuffix(b"0\r\n\r\n"))


@given(data=st.binary(max_size=60) | st.from_regex(rb"([0-9a-f]{1,3}(;x)?\r\n.{0,9}(\r\n)?){1,4}", fullmatch=True))
def test_whatever_comes_is_read_as_httptools_reads_it_or_refused(data: bytes) -> None:
    reference, body = Reference(), ChunkedBody()
    try:
        seen = b"".join(body.feed(data))
    except BadFraming:
        return
    try:
        reference.parser.feed_data(data)
    except httptools.HttpParserError:
        # Stricter than we are with what is not whole yet: nothing of it may have been passed on.
        assert reference.body.startswith(seen)
        return
    assert reference.body.startswith(seen), "never more than the reference sees: it also gives parts of chunks"
