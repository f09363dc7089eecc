"""What the fleet notices, as events to be told and counted.

Used by the control state.  Pure; decides nothing.
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
    """Everything of ``notice`` but the probe that it asks for."""
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
    for kept in notice.kept:
        fields = {"backend": kept.backend, "pool": kept.pool, "reason": kept.reason}
        yield inbox.Tell(EventName.BACKEND_KEPT, fields)
    for pool in notice.pools:
        if pool.serving:
            yield inbox.Tell(EventName.POOL_SERVING, {"pool": pool.pool, "after_s": round(pool.after_s, 3)})
        else:
            yield inbox.Tell(EventName.POOL_DOWN, {"pool": pool.pool, "reason": pool.reason})
