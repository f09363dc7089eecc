"""The in-flight limit of one worker, as a pure decision over its share.

Station admit.  With one worker the share is the whole limit; with several, control leases each worker what it holds
and a part of what is left, so the sum never exceeds the limit.
"""

from __future__ import annotations

from gateway.errors import Overloaded


def admit_one(*, holding: int, share: int) -> None:
    """Raise Overloaded when ``holding`` requests are all that this worker may hold."""
    if holding >= share:
        raise Overloaded(
            f"the gateway holds {holding} requests, its limit at present; try again shortly", retry_after_s=1.0
        )
