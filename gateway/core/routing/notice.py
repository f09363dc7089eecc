"""What the fleet has to tell after an event: changed states, pools that fell or came back.

Values only, made by the fleet, told by the control loop.  Must not hold anything that workers need.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.routing.backend import BackendState


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A backend entered another state; ``reason`` is one sentence."""

    backend: str
    pool: str
    was: BackendState
    state: BackendState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """A pool lost its last serving backend (``serving`` 0, ``reason`` says why), or has one again ``after_s``."""

    pool: str
    serving: int
    reason: str = ""
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class KeptServing:
    """A backend serves on though its requests fail: no more of its pool may be ejected; ``reason`` is a sentence."""

    backend: str
    pool: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What came of one event: to be told, and whether the backend should be probed at once."""

    states: tuple[StateChange, ...] = ()
    kept: tuple[KeptServing, ...] = ()
    pools: tuple[PoolChange, ...] = ()
    probe_now: bool = False
