"""What waits before the client's first byte: comments, and from a backend that is being stopped everything."""

from __future__ import annotations

from gateway.core.stream.summary import StreamSummary
from gateway.proxy.beginning import Beginning

COMMENT = b": keep-alive\n\n"
ROLE = b"data: role\n\n"
TOKEN = b"data: token\n\n"


def nothing_seen() -> StreamSummary:
    return StreamSummary(events=1)


def a_token_seen() -> StreamSummary:
    return StreamSummary(events=2, chunks=1)


def test_comments_wait_for_the_first_event_and_come_with_it() -> None:
    beginning = Beginning(stopping=False)
    assert [beginning.take(COMMENT, nothing_seen) for _ in range(3)] == [b"", b"", b""]
    assert beginning.held_bytes == 3 * len(COMMENT)
    assert beginning.take(COMMENT + ROLE, nothing_seen) == COMMENT * 4 + ROLE
    assert beginning.held_bytes == 0


def test_an_event_that_begins_with_a_comment_line_is_an_event() -> None:
    event = b": ping\n" + ROLE
    assert Beginning(stopping=False).take(event, nothing_seen) == event


def test_from_a_backend_that_is_being_stopped_all_waits_for_a_token() -> None:
    beginning = Beginning(stopping=True)
    assert beginning.take(ROLE, nothing_seen) == b""
    assert beginning.take(COMMENT, nothing_seen) == b""
    assert beginning.take(TOKEN, a_token_seen) == ROLE + COMMENT + TOKEN
    assert not beginning.aborted


def test_an_abort_without_a_token_is_seen_and_goes_nowhere() -> None:
    beginning = Beginning(stopping=True)
    assert beginning.take(ROLE, lambda: StreamSummary(events=1, finish_reasons=("abort",))) == b""
    assert beginning.aborted


def test_each_byte_is_looked_at_once_however_many_comments_wait() -> None:
    beginning = Beginning(stopping=False)
    for _ in range(200_000):  # looked at anew each time, these would be 20,000,000,000 comments
        beginning.take(COMMENT, nothing_seen)
    assert beginning.held_bytes == 200_000 * len(COMMENT)
