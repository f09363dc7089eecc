"""The table of states: every state has its row, and nothing is reachable that should not be."""

from __future__ import annotations

import pytest

from gateway.core.routing.backend import TRANSITIONS, BackendState, may_follow


def test_every_state_has_a_row_and_can_be_reached_or_is_where_all_begins() -> None:
    assert set(TRANSITIONS) == set(BackendState)
    reachable = set().union(*TRANSITIONS.values())
    assert set(BackendState) - reachable == {BackendState.UNKNOWN}


@pytest.mark.parametrize("state", list(BackendState))
def test_staying_is_always_allowed(state: BackendState) -> None:
    assert may_follow(state, state)


def test_a_wedged_card_is_never_started_on() -> None:
    assert not may_follow(BackendState.WEDGED, BackendState.STARTING)
    assert may_follow(BackendState.SERVING, BackendState.DRAINING)
    assert not may_follow(BackendState.STOPPED, BackendState.SERVING)
