"""Station route, before the choice: where requests wait for a place on a backend, and who is next.

Owner of the line of each pool that bounds what its backends get, or that waits for backends which are expected back.
Nothing polls: a lease that ends, a new snapshot, a new share or a waiter's own timer moves it on.  A request that
leaves is gone at once.  Who is next is decided in :mod:`gateway.core.admission.queue`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Final

from gateway.core.admission.ledger import Claim, ShareTable, places_on, queue_of
from gateway.core.admission.queue import Ticket
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import PoolView, Snapshot
from gateway.errors import ShuttingDown
from gateway.proxy.lease import Lease
from gateway.proxy.line import Line, Waiter, flow_of
from gateway.proxy.route import RETRY_AFTER_S, SUSPECT_S, Desk
from gateway.proxy.visit import Visit
from gateway.refusals import InvalidKey, QuotaExceeded

_SLACK_S: Final = 0.05


class WaitingRoom:
    """See the module; one a worker."""

    def __init__(
        self, *, desk: Desk, shares: ShareTable, clock: Callable[[], float], hurry: Callable[[], None]
    ) -> None:
        """``hurry()``: control should hear soon that a share is too small."""
        self._desk = desk
        self._shares = shares
        self._clock = clock
        self._hurry = hurry
        self._lines: dict[str, Line] = {}
        self._pool_of: dict[str, str] = {}
        self._parts: dict[str, dict[str, float]] = {}
        self._look_at = 0.0  # when a backend that refused a connection may be tried again
        self._looking: asyncio.TimerHandle | None = None

    @property
    def empty(self) -> bool:
        """Whether no pool has a line: then nobody ever waits."""
        return not self._lines

    # --- what control says ----------------------------------------------------------------------------------------

    def follow(self, snapshot: Snapshot) -> None:
        """The pools and their rules are these now."""
        self._pool_of = {backend.name: backend.pool for backend in snapshot.backends}
        known = {pool.name: pool for pool in snapshot.pools}
        for name, rules in known.items():
            if rules.concurrency or rules.hold_s or name in self._lines:
                line = self._lines.get(name)
                if line is None:
                    line = self._lines[name] = Line(rules, desk=self._desk, clock=self._clock)
                line.rules = rules
                up = any(it.pool == name and it.state is BackendState.SERVING for it in snapshot.backends)
                if up or line.down_since is None:
                    line.down_since = None if up else self._clock()
        for name, line in list(self._lines.items()):
            rules = known.get(name, PoolView(name=name))
            line.rules = rules  # those who wait go on by the new rules, or learn that nothing serves them
            if not (rules.concurrency or rules.hold_s or line.waiters):
                del self._lines[name]
        self.look_again()

    def weigh(self, parts: dict[str, dict[str, float]]) -> None:
        """Which part of each key's weight counts at this worker, by pool."""
        self._parts = parts

    def look_again(self) -> None:
        """Backends have changed, or may have."""
        self.move()
        for line in self._lines.values():
            for waiter in list(line.waiters.values()):
                line.watch(waiter)

    def move(self) -> None:
        """Shares have changed: serve whoever can be served."""
        for line in self._lines.values():
            self._move(line)

    def check(self, is_good: Callable[[Visit], bool]) -> None:
        """Keys have changed: whoever waits with one that is no longer good has to go."""
        for line in self._lines.values():
            for waiter in list(line.waiters.values()):
                if not is_good(waiter.visit):
                    waiter.fail(InvalidKey("the key was revoked or has expired while the request waited"))

    def forget(self, keep: Collection[str]) -> None:
        """Let go of flows of keys that are no more, once nothing of them waits."""
        for line in self._lines.values():
            line.queue.forget(keep)

    def end_all(self) -> None:
        """Shutdown's deadline."""
        for line in self._lines.values():
            for waiter in list(line.waiters.values()):
                waiter.fail(ShuttingDown("the gateway is shutting down", retry_after_s=RETRY_AFTER_S))

    # --- a request ------------------------------------------------------------------------------------------------

    def try_lease(self, visit: Visit) -> Lease | None:
        """A lease at once, None when the request has to wait.  Raises NothingServing."""
        line = self._lines.get(visit.pool)
        if line is None:
            return self._desk.lease(pool=visit.pool, model=visit.model, tried=visit.tried, session=visit.session)
        if line.queue.waiting:
            return None
        lease = self._room_for(line, visit)
        if lease is not None:
            line.charge(visit, line.queue.pass_by(self._weighed(line, visit), now=self._clock()))
        elif not line.can_serve(visit) and self._clock() >= line.held_until(visit):
            raise line.nothing_serves()
        return lease

    async def wait(self, visit: Visit) -> Lease:
        """A lease, once it is this request's turn; it is counted already.

        Raises QueueFull, QueueTimeout, QuotaExceeded, DeadlineExceeded, NothingServing, ShuttingDown, InvalidKey.
        """
        began = self._clock()
        line = self._lines[visit.pool]
        waiter = self._line_up(line, visit)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            future = waiter.future
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().give_back()  # its turn came in the moment that its client left
            raise
        finally:
            line.leave(waiter)
            visit.admitted = (began if visit.admitted is None else visit.admitted) + self._clock() - began

    def may_hold(self, visit: Visit) -> bool:
        """Whether a request that was refused a connection may wait for one of its backends to come back.

        That one is looked at again in a moment, when it is passed over no longer.
        """
        line = self._lines.get(visit.pool)
        if line is None or not line.rules.hold_s:
            return False
        self._look_at = self._clock() + SUSPECT_S + _SLACK_S
        self._look_then()
        return self._clock() < line.held_until(visit)

    def _look_then(self) -> None:
        """One timer for all of them: each look is at everybody who waits."""
        if self._looking is None:
            left_s = self._look_at - self._clock()
            self._looking = asyncio.get_running_loop().call_later(left_s, self._look_now)

    def _look_now(self) -> None:
        self._looking = None
        if self._look_at > self._clock():  # another one was refused meanwhile
            self._look_then()
        self.look_again()

    def settled(self, visit: Visit, tokens: int) -> None:
        """A request has ended, having cost ``tokens``."""
        line = self._lines.get(visit.pool)
        if line is not None and visit.charged is not None:
            line.settle(visit, tokens)

    # --- the lines ------------------------------------------------------------------------------------------------

    def _line_up(self, line: Line, visit: Visit) -> Waiter:
        now = self._clock()
        at, error = line.limit(visit)
        if at <= now:
            raise error
        ticket = Ticket(
            self._weighed(line, visit),
            want=(visit.model, tuple(visit.tried), "" if visit.only is None else visit.only.name),
            queued_at=now if visit.queued is None else visit.queued,
            priority=visit.priority,
        )
        places = self._shares.of(queue_of(line.rules.name), line.rules.queue)
        share = 1.0 if visit.key is None else visit.key.limits.queue_share
        victim = line.queue.offer(ticket, places=places, share=share, now=now)
        waiter = line.waiters[ticket] = Waiter(visit, ticket, since=now)
        if victim is not None:
            retry_after_s = line.queue.retry_after_s(now)
            message = "another key, with fewer requests waiting, needs the place in the queue"
            line.waiters[victim].fail(QuotaExceeded(message, param="queue_share", retry_after_s=retry_after_s))
        line.watch(waiter)
        self._move(line)
        if not self._shares.lone and not waiter.future.done():
            self._hurry()
        return waiter

    def _move(self, line: Line) -> None:
        """Serve whoever is next, for as long as there is room."""
        failed: set[Hashable] = set()
        while line.queue.waiting and (ticket := line.queue.first(unless=failed)) is not None:
            waiter = line.waiters[ticket]
            if waiter.future.done():  # it has left, or was told why it cannot stay
                line.queue.leave(ticket)
                continue
            lease = self._room_for(line, waiter.visit)
            if lease is None:
                failed.add(ticket.want)
                continue
            lease.take()
            line.charge(waiter.visit, line.queue.serve(ticket, now=self._clock()))
            waiter.future.set_result(lease)

    def freed(self, backend: str) -> None:
        """A lease on ``backend`` has ended."""
        line = self._lines.get(self._pool_of.get(backend, ""))
        if line is None:
            return
        if line.queue.waiting:
            self._move(line)
        if not self._shares.lone and line.rules.concurrency and not self._has_room(line, backend):
            self._hurry()  # a place was given up for others to have

    def _room_for(self, line: Line, visit: Visit) -> Lease | None:
        return self._desk.lease_within(
            pool=visit.pool,
            model=visit.model,
            tried=visit.tried,
            session=visit.session,
            room=lambda backend: self._has_room(line, backend),
            patient=line.patient(visit),
            only=visit.only,
        )

    def _has_room(self, line: Line, backend: str) -> bool:
        limit = line.rules.concurrency
        return not limit or self._desk.in_flight.get(backend, 0) < self._shares.of(places_on(backend), limit)

    def _weighed(self, line: Line, visit: Visit) -> str:
        flow = flow_of(visit)
        weight = 1.0 if visit.key is None else visit.key.weight
        line.queue.weigh(flow, weight * self._parts.get(line.rules.name, {}).get(flow, 1.0))
        return flow

    # --- what is known --------------------------------------------------------------------------------------------

    def flows(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Pool -> flow -> requests that wait and requests that are served."""
        return {name: found for name, line in self._lines.items() if (found := line.flows())}

    def waits(self) -> dict[str, float]:
        """Pool -> since when the request waits there that has waited longest."""
        return {name: line.since for name, line in self._lines.items() if line.waiters}

    def claims(self) -> Iterator[tuple[str, Claim]]:
        """What this worker says of places on backends and in queues."""
        for name, line in self._lines.items():
            yield queue_of(name), self._shares.claim(queue_of(name), holding=line.queue.waiting)
        for backend, pool in self._pool_of.items():
            if pool in self._lines:
                places = places_on(backend)
                yield places, self._shares.claim(places, holding=self._desk.in_flight.get(backend, 0))
