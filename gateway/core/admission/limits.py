"""The in-flight limit of one worker, as a pure decision over its share.

Station admit.  With one worker the share is the whole limit; with several, control leases each worker a part and
renews it, so the sum never exceeds the limit by more than what is being renewed.
"""

from __future__ import annotations

from gateway.errors import Overloaded


def share_of(limit: int, *, worker: int, workers: int) -> int:
    """The part of ``limit`` that worker number ``worker`` of ``workers`` may use; parts add up to the limit."""
    whole, rest = divmod(limit, max(1, workers))
    return whole + (1 if worker < rest else 0)


def admit_one(*, holding: int, share: int) -> None:
    """Raise Overloaded when ``holding`` requests are all that this worker may hold."""
    if holding >= share:
        raise Overloaded(
            f"the gateway holds {holding} requests, its limit at present; try again shortly", retry_after_s=1.0
        )
