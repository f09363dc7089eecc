"""Lines of the tether: every word survives the way, cut anywhere; what is not understood is skipped."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tether import MAX_LINE_BYTES, Adopt, Beat, Drained, Lines, Ready, Release, Reload, Stop, line

SAID = st.one_of(
    st.sampled_from([Beat(), Ready(), Drained(), Reload()]),
    st.integers(0, 9999).map(Adopt),
    st.integers(0, 9999).map(Release),
    st.integers(0, 10**7).map(lambda milliseconds: Stop(milliseconds / 1000)),
)


@given(st.lists(SAID, max_size=20), st.lists(st.integers(0, 400)))
def test_what_is_said_is_heard_whatever_the_cuts(said, cuts) -> None:
    data = b"".join(line(word) for word in said)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    lines = Lines()
    heard = [word for start, end in itertools.pairwise(edges) for word in lines.feed(data[start:end])]
    assert heard == said


@pytest.mark.parametrize(
    "said,text",
    [
        (Beat(), b"beat\n"),
        (Adopt(3), b"adopt 3\n"),
        (Stop(30.0), b"stop 30.000\n"),
        (Stop(0.0), b"stop 0.000\n"),
    ],
    ids=str,
)
def test_lines_can_be_read_by_people(said, text: bytes) -> None:
    assert line(said) == text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"bEat",
        b"beat 1",
        b"upgrade",
        b"adopt",
        b"adopt -1",
        b"adopt 1.0",
        b"adopt 10000",
        b"adopt \xb2",
        b"abandon 1",
        b"stop",
        b"stop soon",
        b"stop -1",
        b"stop nan",
        b"stop inf",
        b"\xff\xfe",
        b" beat",
    ],
)
def test_a_line_that_is_not_understood_is_skipped(text: bytes) -> None:
    assert Lines().feed(text + b"\nbeat\n") == [Beat()]


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_an_overlong_line_is_skipped_to_its_end_and_not_kept(pieces: int) -> None:
    lines = Lines()
    data = b"x" * (MAX_LINE_BYTES * 10)
    size = len(data) // pieces + 1
    for start in range(0, len(data), size):
        assert lines.feed(data[start : start + size]) == []
        assert len(lines._pending) <= MAX_LINE_BYTES
    assert lines.feed(b"beat\nready\n") == [Ready()]


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_no_bytes_break_the_machine(pieces: list[bytes]) -> None:
    lines = Lines()
    for piece in pieces:
        lines.feed(piece)
    assert lines.feed(b"\nbeat\n")[-1:] == [Beat()]
