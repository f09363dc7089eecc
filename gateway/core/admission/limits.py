"""The in-flight limit of one worker, as a pure decision over its share.

Station admit.  With one worker the share is the whole limit; with several, control gives each what it holds and a part
of what is left, in the way of :mod:`gateway.core.admission.shares`, so that together they never hold more.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import Overloaded


def admit_one(*, holding: int, share: int, free_in_s: Callable[[], float]) -> None:
    """Raise Overloaded when ``holding`` requests are all that this worker may hold.

    ``free_in_s``: asked then, when one of them will have ended.
    """
    if holding >= share:
        raise Overloaded(
            f"the gateway holds {holding} requests, its limit at present; try again shortly", retry_after_s=free_in_s()
        )
