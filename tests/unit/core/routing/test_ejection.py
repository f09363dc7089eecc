"""How many of a pool failing requests may eject."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.routing.backend import BackendState
from gateway.core.routing.ejection import may_eject
from gateway.core.routing.health import Health, begin


def pool(*, serving: int, by_requests: int = 0, by_probes: int = 0) -> list[Health]:
    well = replace(begin(0.0), state=BackendState.SERVING)
    gone = replace(begin(0.0), state=BackendState.EJECTED)
    return [well] * serving + [replace(gone, by_requests=True)] * by_requests + [gone] * by_probes


@pytest.mark.parametrize(
    "members, share, allowed",
    [
        (pool(serving=1), 1.0, False),
        (pool(serving=2), 0.5, True),
        (pool(serving=2), 0.4, False),
        (pool(serving=2, by_requests=2), 0.5, False),
        (pool(serving=3, by_requests=1), 0.5, True),
        (pool(serving=9, by_requests=1), 0.2, True),
        (pool(serving=7, by_requests=3), 0.3, False),
        (pool(serving=2, by_requests=2), 1.0, True),
        (pool(serving=1, by_requests=3), 1.0, False),
        (pool(serving=2, by_probes=2), 0.5, True),
        (pool(serving=2), 0.0, False),
    ],
)
def test_a_share_of_the_pool_and_never_the_last_one(members: list[Health], share: float, *, allowed: bool) -> None:
    assert may_eject(members, share=share) is allowed
