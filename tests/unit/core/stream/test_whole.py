"""Whole events out of any cut: nothing lost, nothing early, nothing late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.stream.http1 import ends_event, last_event_end
from gateway.core.stream.whole import WholeEvents

pieces = st.lists(st.text("ab\r\n", max_size=6).map(str.encode), max_size=12)


@given(pieces=pieces)
def test_what_is_given_out_are_whole_events_and_all_that_have_come(pieces: list[bytes]) -> None:
    cutter, out, fed = WholeEvents(), b"", b""
    for piece in pieces:
        fed += piece
        events = cutter.feed(piece)
        out += events
        assert not events or ends_event(events)
        assert fed.startswith(out)
        assert last_event_end(fed[len(out) :]) == 0, "every whole event is out as soon as it is whole"
        assert cutter.rest_bytes == len(fed) - len(out)
    assert out + cutter.take_rest() == fed
    assert (cutter.rest_bytes, cutter.take_rest()) == (0, b"")


def test_an_event_in_very_many_pieces_is_put_together_once() -> None:
    cutter = WholeEvents()
    for _ in range(100_000):
        assert cutter.feed(b"x") == b""
    assert cutter.feed(b"\n\nrest") == b"x" * 100_000 + b"\n\n"
    assert cutter.take_rest() == b"rest"
