"""The tally of ended requests forgets by halves of its window."""

from __future__ import annotations

import pytest

from gateway.core.routing.evidence import COUNTED_CODES, LOST_CONNECTION, Tally


def test_endings_within_half_the_window_add_up() -> None:
    tally = Tally(started=0.0).add(1.0, 10.0, failed=2).add(4.9, 10.0, good=3)
    assert (tally.all_failed, tally.all_ended) == (2, 5)


def test_the_older_half_is_kept_once_and_then_forgotten() -> None:
    tally = Tally(started=0.0).add(1.0, 10.0, failed=2, good=1).add(5.0, 10.0, failed=1)
    assert (tally.all_failed, tally.all_ended) == (3, 4)
    tally = tally.add(10.0, 10.0, good=1)
    assert (tally.all_failed, tally.all_ended) == (1, 2)


def test_after_a_whole_quiet_window_everything_is_forgotten() -> None:
    tally = Tally(started=0.0).add(1.0, 10.0, failed=9).add(11.0, 10.0, good=1)
    assert (tally.all_failed, tally.all_ended) == (0, 1)


@pytest.mark.parametrize("code", sorted(LOST_CONNECTION))
def test_a_lost_connection_speaks_against_a_backend(code: str) -> None:
    assert code in COUNTED_CODES


def test_backpressure_does_not_speak_against_a_backend() -> None:
    assert "backend_refused" not in COUNTED_CODES
