"""Changes of the fleet as actions: what is told and counted of them.

Part of the control state's answers.  Pure; must not decide anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.control import inbox
from gateway.control.inbox import Action
from gateway.core.routing.notice import Notice
from gateway.telemetry.events import EventName


def reading(backend: str, path: str, *, problem: str) -> Action:
    """A page of a backend cannot be read, or can be again."""
    return inbox.Tell(EventName.BACKEND_READING, {"backend": backend, "path": path, "problem": problem})


def told(notice: Notice) -> Iterator[Action]:
    """What a change in the fleet is told as, and counted."""
    for change in notice.states:
        yield inbox.CountState(change.backend, change.state.value)
        yield inbox.Tell(
            EventName.BACKEND_STATE,
            {
                "backend": change.backend,
                "pool": change.pool,
                "state": change.state.value,
                "was": change.was.value,
                "reason": change.reason,
            },
        )
    for pool in notice.pools:
        if pool.serving:
            yield inbox.Tell(EventName.POOL_SERVING, {"pool": pool.pool, "after_s": round(pool.after_s, 3)})
        else:
            yield inbox.Tell(EventName.POOL_DOWN, {"pool": pool.pool, "reason": pool.reason})
