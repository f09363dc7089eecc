"""The tally of ended requests forgets by halves of its window."""

from __future__ import annotations

import pytest

from gateway.core.routing.evidence import COUNTED_CODES, LOST_CONNECTION, Tally, speaks_against


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


@pytest.mark.parametrize("code", [*sorted(COUNTED_CODES), "status_500", "status_502", "status_599"])
def test_what_a_backend_did_speaks_against_it(code: str) -> None:
    assert speaks_against(code)


@pytest.mark.parametrize(
    "code", ["backend_refused", "status_503", "status_429", "status_400", "status_", "status_x", "bad_request", ""]
)
def test_backpressure_and_what_clients_did_do_not_speak_against_a_backend(code: str) -> None:
    assert not speaks_against(code)


def test_a_lost_connection_speaks_against_a_backend() -> None:
    assert LOST_CONNECTION <= COUNTED_CODES
