"""Which session a request belongs to."""

from __future__ import annotations

from gateway.core.request.body import ParsedBody, parse_body
from gateway.core.request.session import session_of
from gateway.core.stream.summary import Dialect


def chat(*turns: str) -> ParsedBody:
    listed = ",".join(f'{{"role":"user","content":"{turn}"}}' for turn in turns)
    return parse_body(f'{{"model":"m","messages":[{listed}]}}'.encode(), Dialect.CHAT)


def test_the_header_tells_it_whatever_is_asked() -> None:
    assert session_of(chat("a"), "s1", prefix_bytes=64) == session_of(chat("b"), "s1", prefix_bytes=0)
    assert session_of(chat("a"), "s1", prefix_bytes=64) != session_of(chat("a"), "s2", prefix_bytes=64)
    assert session_of(chat("a"), "sé\udc80", prefix_bytes=0) is not None


def test_else_the_beginning_of_the_prompt_so_that_the_next_turn_is_of_the_same() -> None:
    long = "x" * 100
    first = session_of(chat(long), None, prefix_bytes=64)
    assert first is not None
    assert session_of(chat(long, "and then"), None, prefix_bytes=64) == first
    assert session_of(chat(long + "y"), "", prefix_bytes=64) == first
    assert session_of(chat("y" + long), None, prefix_bytes=64) != first


def test_a_completion_s_prompt_counts_like_messages() -> None:
    body = parse_body(b'{"model":"m","prompt":"once upon"}', Dialect.COMPLETIONS)
    assert session_of(body, None, prefix_bytes=8) is not None


def test_nothing_tells_it_where_there_is_no_prompt_or_it_does_not_count() -> None:
    assert session_of(parse_body(b'{"model":"m"}', Dialect.CHAT), None, prefix_bytes=64) is None
    assert session_of(chat("a"), None, prefix_bytes=0) is None
