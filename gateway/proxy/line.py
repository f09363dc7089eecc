"""One pool's line: its rules, its queue, who waits in it and until when.

Part of the waiting room (:mod:`gateway.proxy.waiting`), which owns the lines and moves them on.  Each waiter has one
timer, for whatever comes first: the pool's longest wait, its own deadline, the end of waiting for backends that are
away.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from gateway.core.admission.queue import FairQueue, Ticket
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import PoolView
from gateway.errors import GatewayError, NothingServing
from gateway.proxy.lease import Lease
from gateway.proxy.route import Desk
from gateway.proxy.visit import Visit
from gateway.refusals import DeadlineExceeded, QueueTimeout

_COMING: Final = frozenset(
    {
        BackendState.STARTING,
        BackendState.LOADING,
        BackendState.WARMING,
        BackendState.MEASURING,
        BackendState.DRAINING,
        BackendState.STOPPING,
        BackendState.CLEANING,
    }
)
"""States of a backend that serves again by itself, as far as can be told."""


LATEST_RETRY_S: Final = 60.0
"""Nobody is sent away for longer, however long nothing has served."""


class Waiter:
    """One waiting request; owned by its line."""

    __slots__ = ("future", "since", "ticket", "timer", "visit")

    def __init__(self, visit: Visit, ticket: Ticket, *, since: float) -> None:
        """``since``: when it began to wait."""
        self.since = since
        self.visit = visit
        self.ticket = ticket
        self.future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None

    def fail(self, error: GatewayError) -> None:
        """It is told ``error``, unless it has been told something already."""
        if not self.future.done():
            self.future.set_exception(error)

    def stop_timer(self) -> None:
        """Nothing happens to it by itself any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Line:
    """See the module.  ``serving`` counts the requests of each flow that have had their turn and have not ended."""

    __slots__ = ("_clock", "_desk", "down_since", "queue", "rules", "serving", "waiters")

    def __init__(self, rules: PoolView, *, desk: Desk, clock: Callable[[], float]) -> None:
        self._desk = desk
        self._clock = clock
        self.rules = rules
        self.queue = FairQueue()
        self.waiters: dict[Ticket, Waiter] = {}
        self.serving: Counter[str] = Counter()
        self.down_since: float | None = None

    def leave(self, waiter: Waiter) -> None:
        """A waiter is gone, whatever became of it."""
        waiter.stop_timer()
        self.queue.leave(waiter.ticket)
        self.waiters.pop(waiter.ticket, None)

    def charge(self, visit: Visit, charged: float) -> None:
        """A request has its turn, and its flow was charged for it."""
        if visit.charged is None:
            self.serving[flow_of(visit)] += 1
        visit.charged = (visit.charged or 0.0) + charged

    def settle(self, visit: Visit, tokens: int) -> None:
        """A request that had its turn has ended, having cost ``tokens``."""
        flow = flow_of(visit)
        self.queue.freed(self._clock())
        self.queue.settle(flow, charged=visit.charged or 0.0, cost=tokens)
        if self.serving[flow] > 1:
            self.serving[flow] -= 1
        else:
            del self.serving[flow]

    def flows(self) -> dict[str, tuple[int, int]]:
        """Flow -> requests that wait and requests that are served."""
        waiting = dict(self.queue.counts())
        return {flow: (waiting.get(flow, 0), self.serving[flow]) for flow in {*waiting, *self.serving}}

    @property
    def since(self) -> float:
        """When the one came here that waits and came first; there must be one."""
        return min(it.since for it in self.waiters.values())

    # --- how long -------------------------------------------------------------------------------------------------

    def watch(self, waiter: Waiter) -> None:
        """Look whether a waiter's time is over, and again when it will be."""
        waiter.stop_timer()
        if waiter.future.done():
            return
        now = self._clock()
        at, _ = self.limit(waiter.visit)
        if at <= now:
            self.queue.leave(waiter.ticket)
            _, error = self.limit(waiter.visit)  # it would come back behind those that are left
            waiter.fail(error)
            return
        waiter.timer = asyncio.get_running_loop().call_later(max(0.001, at - now), self.watch, waiter)

    def limit(self, visit: Visit) -> tuple[float, GatewayError]:
        """Until when a request may wait, and what it is told then."""
        now, rules = self._clock(), self.rules
        retry_after_s = self.queue.retry_after_s(now)
        at = (now if visit.queued is None else visit.queued) + rules.queue_s
        error: GatewayError = QueueTimeout(
            f"no place on a backend was free within {rules.queue_s:g} s", retry_after_s=retry_after_s
        )
        deadline = visit.deadline
        if deadline is None and rules.deadline_s:
            deadline = visit.accepted + rules.deadline_s
        if deadline is not None and deadline < at:
            at = deadline
            error = DeadlineExceeded("the request's deadline passed while it waited", retry_after_s=retry_after_s)
        if not self.can_serve(visit):
            held_until = self.held_until(visit)
            if held_until < at:
                return held_until, self.nothing_serves()
        return at, error

    def can_serve(self, visit: Visit) -> bool:
        """Whether there is a backend that could serve the request if it had room."""
        return self._desk.can_serve(
            pool=visit.pool, model=visit.model, tried=visit.tried, patient=self.patient(visit), only=visit.only
        )

    def patient(self, visit: Visit) -> bool:
        """Whether it rather waits for a backend to come back; not where only one can answer."""
        return self.rules.hold_s > 0 and visit.only is None

    def held_until(self, visit: Visit) -> float:
        """Until when a request waits for a backend to come back; counted from the first time that it has to."""
        now, hold_s = self._clock(), self.rules.hold_s
        if not self.patient(visit):
            return visit.accepted  # long past: not now, which whoever read the clock a moment ago would wait for
        if visit.held_until is None:
            visit.held_until = now + hold_s
        coming = any(b.pool == visit.pool and b.state in _COMING for b in self._desk.snapshot.backends)
        if coming or self.down_since is None:
            return visit.held_until
        return min(visit.held_until, self.down_since + hold_s)

    def nothing_serves(self) -> NothingServing:
        """What a request is told that no backend can serve now, and none is waited for.

        When to come back: at the next health probe, later the longer nothing has served; what has been away for a
        minute is not back in a second, and nobody knows more.
        """
        gone_s = 0.0 if self.down_since is None else self._clock() - self.down_since
        retry_after_s = max(self._desk.away_s, min(gone_s / 2, LATEST_RETRY_S))
        return NothingServing("no backend is serving this model at present", retry_after_s=retry_after_s)


def flow_of(visit: Visit) -> str:
    """Whose request it is: the id of its key, "" where there are no keys."""
    return "" if visit.key is None else visit.key.id
