"""How a pool's requests are spread, and when a request is refused since engines die of it: the settings as values.

Travels in the snapshot; read by station route and by control.  Defaults stand here and nowhere else.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Policy(StrEnum):
    """Which backend of a pool gets the next request."""

    LEAST_IN_FLIGHT = "least-in-flight"
    POWER_OF_TWO = "power-of-two"
    SESSION = "session"
    MEASURED_RATE = "measured-rate"


class RoutingPolicy(Struct, frozen=True, kw_only=True):
    """One pool's rules.

    ``prefix_bytes``: how much of a prompt tells a session where no header does, 0: none; ``slow_start_s``: how long the
    share of a backend that begins to serve grows, 0: not at all; ``max_ejected``: the part of the pool that failing
    requests may eject.
    """

    policy: Policy = Policy.LEAST_IN_FLIGHT
    prefix_bytes: int = 1024
    slow_start_s: float = 20.0
    max_ejected: float = 0.5


class PoisonPolicy(Struct, frozen=True, kw_only=True):
    """A request that was in flight at ``deaths`` outages of backends is refused for ``quarantine_s``; 0 deaths: off."""

    deaths: int = 2
    quarantine_s: float = 600.0
