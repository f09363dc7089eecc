"""The weight of a backend that begins to serve."""

from __future__ import annotations

import pytest

from gateway.core.routing.backend import ALWAYS, BackendState
from gateway.core.routing.slow_start import FLOOR, warm_at, weight
from gateway.core.routing.snapshot import BackendView


def since(serving_since: float) -> BackendView:
    state = BackendState.SERVING
    return BackendView(name="a", pool="p", url="http://127.0.0.1:1", state=state, serving_since=serving_since)


def test_the_weight_grows_from_the_floor_to_one_in_a_straight_line() -> None:
    ages = (-1.0, 0.0, 10.0, 20.0, 1000.0)
    assert [weight(since(100.0), 20.0, now=100.0 + age) for age in ages] == pytest.approx(
        [FLOOR, FLOOR, (1 + FLOOR) / 2, 1.0, 1.0]
    )


def test_whoever_served_before_anybody_looked_has_all_of_it() -> None:
    assert weight(since(ALWAYS), 20.0, now=1.0) == 1.0


def test_off_means_that_nobody_is_new() -> None:
    assert weight(since(100.0), 0.0, now=100.0) == 1.0


def test_all_are_warm_when_the_last_one_is() -> None:
    assert warm_at([since(ALWAYS), since(100.0), since(90.0)], 20.0) == 120.0
    assert warm_at([], 20.0) == ALWAYS
