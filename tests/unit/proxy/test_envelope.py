"""Heads and whole responses that the gateway writes itself."""

from __future__ import annotations

import pytest

from gateway.errors import NothingServing
from gateway.proxy.envelope import connection_line, error_response, head, response


@pytest.mark.parametrize(
    "keep_alive, http_1_1, line",
    [
        (True, True, b""),
        (False, True, b"Connection: close\r\n"),
        (True, False, b"Connection: keep-alive\r\n"),
        (False, False, b""),
    ],
)
def test_the_connection_is_named_only_where_the_version_says_otherwise(
    keep_alive: bool,
    http_1_1: bool,
    line: bytes,
) -> None:
    assert connection_line(keep_alive=keep_alive, http_1_1=http_1_1) == line


@pytest.mark.parametrize(
    "length, chunked, framing",
    [(5, False, b"Content-Length: 5\r\n"), (None, True, b"Transfer-Encoding: chunked\r\n"), (None, False, b"")],
)
def test_a_head_states_how_its_body_ends(length: int | None, chunked: bool, framing: bytes) -> None:
    assert head(200, b"OK", headers=b"A: b\r\n", length=length, chunked=chunked) == (
        b"HTTP/1.1 200 OK\r\nA: b\r\n" + framing + b"\r\n"
    )


def test_a_response_to_head_has_no_body_and_the_same_length() -> None:
    assert response(200, b"{}", with_body=False).endswith(b"Content-Length: 2\r\n\r\n")


@pytest.mark.parametrize("after_s, header", [(0.2, b"Retry-After: 1\r\n"), (2.1, b"Retry-After: 3\r\n"), (None, b"")])
def test_retry_after_is_in_whole_seconds_and_at_least_one(after_s: float | None, header: bytes) -> None:
    answer = error_response(NothingServing("no", retry_after_s=after_s), dialect=None, headers=b"")
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"X-Gateway-Error: 1\r\n" in answer
    assert (b"Retry-After" in answer) is bool(header)
    assert header in answer
