"""When a place becomes free, told by how fast they did."""

from __future__ import annotations

import pytest

from gateway.core.admission.drain import WAIT_MAX_S, WAIT_MIN_S, WAIT_UNKNOWN_S, Drain


def busy(*, began: float, every_s: float, count: int) -> Drain:
    """Since ``began`` a request ended every so many seconds."""
    drain = Drain()
    for at in range(count):
        drain.began(began + at * every_s)
        drain.freed(began + (at + 1) * every_s)
    return drain


def test_while_none_has_ended_nothing_is_known() -> None:
    drain = Drain()
    assert drain.wait_s(3, 5.0) == WAIT_UNKNOWN_S
    for _ in range(100):
        drain.began(5.0)
    assert drain.wait_s(3, 5.5) == WAIT_UNKNOWN_S, "those that begin free nothing"


@pytest.mark.parametrize("count", [1, 3, 50])
def test_the_pace_is_known_from_the_first_end_on(count: int) -> None:
    drain = busy(began=1000.0, every_s=4.0, count=count)
    assert drain.wait_s(5, 1000.0 + 4.0 * count) == pytest.approx(20.0, rel=0.2)


def test_idle_time_is_no_sign_of_slowness() -> None:
    drain = busy(began=0.0, every_s=1.0, count=50)
    drain.began(500.0)
    drain.freed(502.0)
    assert drain.wait_s(4, 502.0) == pytest.approx(8.0)


def test_ends_that_are_rarer_than_the_window_count_by_the_time_since_the_last() -> None:
    drain = busy(began=0.0, every_s=60.0, count=2)
    assert drain.wait_s(1, 120.0) == pytest.approx(30.0)
    assert drain.wait_s(1, 165.0) == pytest.approx(45.0)
    assert drain.wait_s(3, 165.0) == pytest.approx(135.0)


def test_what_is_told_has_bounds() -> None:
    assert busy(began=0.0, every_s=0.01, count=1000).wait_s(1, 10.0) == WAIT_MIN_S
    assert busy(began=0.0, every_s=20.0, count=3).wait_s(1000, 60.0) == WAIT_MAX_S
