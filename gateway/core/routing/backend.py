"""States of a backend and which change may follow which: the one table.

Used by the fleet (owner of the states) and, read-only, by the route station.  Pure; the diagram in the docs is drawn
from :data:`TRANSITIONS`.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

ALWAYS: Final = float("-inf")
"""Since when a backend serves that served before anybody looked."""


class BackendState(StrEnum):
    """What a backend is doing, as far as the gateway knows."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    MEASURING = "measuring"
    SERVING = "serving"
    EJECTED = "ejected"
    DRAINING = "draining"
    STOPPING = "stopping"
    CLEANING = "cleaning"
    STOPPED = "stopped"
    FAILED = "failed"
    WEDGED = "wedged"


_S = BackendState

TRANSITIONS: Final = MappingProxyType(
    {
        _S.UNKNOWN: frozenset({_S.STARTING, _S.LOADING, _S.SERVING, _S.EJECTED, _S.DRAINING, _S.STOPPED, _S.FAILED}),
        _S.STARTING: frozenset({_S.LOADING, _S.STOPPING, _S.FAILED}),
        _S.LOADING: frozenset({_S.WARMING, _S.STOPPING, _S.FAILED}),
        _S.WARMING: frozenset({_S.MEASURING, _S.SERVING, _S.STOPPING, _S.FAILED}),
        _S.MEASURING: frozenset({_S.SERVING, _S.STOPPING, _S.FAILED}),
        _S.SERVING: frozenset({_S.EJECTED, _S.DRAINING, _S.FAILED}),
        _S.EJECTED: frozenset({_S.SERVING, _S.DRAINING, _S.FAILED}),
        _S.DRAINING: frozenset({_S.SERVING, _S.EJECTED, _S.STOPPING}),
        _S.STOPPING: frozenset({_S.CLEANING, _S.FAILED}),
        _S.CLEANING: frozenset({_S.STOPPED, _S.WEDGED, _S.FAILED}),
        _S.STOPPED: frozenset({_S.STARTING}),
        _S.FAILED: frozenset({_S.STARTING, _S.STOPPING, _S.CLEANING, _S.STOPPED}),
        _S.WEDGED: frozenset({_S.CLEANING}),
    }
)
"""Allowed changes: state -> the states that may follow it."""


def may_follow(before: BackendState, after: BackendState) -> bool:
    """Whether ``after`` is an allowed next state of ``before``; staying is always allowed."""
    return before is after or after in TRANSITIONS[before]
