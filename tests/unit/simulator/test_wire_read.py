"""Requests out of bytes: however they are cut, and nothing that two readers could read in two ways."""

from __future__ import annotations

import pytest

from gateway.simulator.wire_read import RequestReader

SIZED = b"POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n0A ;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
)
BARE = b"GET / HTTP/1.1\r\n\r\n"


def taken(reader: RequestReader) -> list[tuple[str, bytes]]:
    """Every request that is whole."""
    found = []
    while (one := reader.take()) is not None:
        found.append((one[0].target, one[1]))
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_requests_come_out_whole_however_their_bytes_are_cut(size: int) -> None:
    reader, found = RequestReader(), list[tuple[str, bytes]]()
    data = SIZED + CHUNKED + BARE + CHUNKED
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
        found += taken(reader)
    assert found == [("/a?b", b"hello"), ("/c", b"abc0123456789"), ("/", b""), ("/c", b"abc0123456789")]
    assert len(reader) == 0


@pytest.mark.parametrize("size", ["0x3", "+3", "-3", "3_0", "", "3 3", "g", "٣"])
def test_a_size_of_a_chunk_is_hexadecimal_digits_and_nothing_else(size: str) -> None:
    reader = RequestReader()
    reader.feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + size.encode() + b"\r\nabc\r\n0\r\n\r\n")
    with pytest.raises(ValueError, match="size"):
        reader.take()


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: +5",
        b"Content-Length: -5",
        b"Content-Length: 5_0",
        b"Content-Length: 99999999999999999999999999999999999999999",
        b"Content-Length: 67108865",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"nonsense",
    ],
)
def test_what_is_no_request_is_an_error(head: bytes) -> None:
    reader = RequestReader()
    reader.feed(b"POST / HTTP/1.1\r\n" + head + b"\r\n\r\n")
    with pytest.raises(ValueError, match=r".+"):
        reader.take()


@pytest.mark.parametrize(
    "data", [b"x" * 70_000, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000]
)
def test_lines_without_end_are_an_error(data: bytes) -> None:
    reader = RequestReader()
    reader.feed(data)
    with pytest.raises(ValueError, match="size"):
        reader.take()


def test_a_chunk_that_does_not_end_where_it_says_is_an_error() -> None:
    reader = RequestReader()
    reader.feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n")
    with pytest.raises(ValueError, match="chunk"):
        reader.take()


def test_a_client_is_told_to_go_on_only_while_it_waits_for_that() -> None:
    reader = RequestReader()
    reader.feed(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert taken(reader) == []
    waits = [reader.awaits_go_on]
    reader.feed(b"a")
    assert taken(reader) == []
    waits.append(reader.awaits_go_on)
    assert waits == [True, False]
    reader.feed(b"b")
    assert taken(reader) == [("/", b"ab")]
