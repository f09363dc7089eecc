"""How many backends of a pool failing requests may eject: a share of it, and never the last one that serves.

Asked by the fleet before it steps a backend's health.  What fails everywhere is most likely not the backends' fault,
and a pool without backends serves nobody (the panic rule of other balancers).  Ejections by probes are not bounded:
where nothing listens nothing can be served.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from math import floor

from gateway.core.routing.backend import BackendState
from gateway.core.routing.health import Health


def may_eject(pool: Collection[Health], *, share: float) -> bool:
    """Whether one more serving member of ``pool`` may be ejected for failing requests."""
    ejected = sum(health.by_requests for health in pool)
    serving = sum(health.state is BackendState.SERVING for health in pool)
    return serving > 1 and ejected < floor(share * len(pool) + 1e-9)
