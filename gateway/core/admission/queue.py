"""The bounded queue of one pool: places, fairness between flows, order within one, and who has to go when it is full.

Station admit.  Between flows the virtual clock decides (:mod:`gateway.core.admission.fairness`); within a flow a
request that is one step of priority lower counts as one that came a second later, so it is overtaken for a while and
never for ever.  In a full queue the flow that holds most for its weight gives up its last request to a flow that holds
less: one client's flood never keeps another's request out.  Pure: the shell holds what waits, and says when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from gateway.core.admission.drain import Drain
from gateway.core.admission.fairness import Flow, VirtualClock
from gateway.refusals import QueueFull, QuotaExceeded

PRIORITY_STEP_S: Final = 1.0
_LOOSE_ENTRIES: Final = 64


class Ticket:
    """A waiting request.  ``want``: what can serve it; two that want the same can be served by the same."""

    __slots__ = ("flow", "rank", "waiting", "want")

    def __init__(self, flow: str, *, want: Hashable, queued_at: float, priority: int) -> None:
        """``queued_at`` is monotonic; the lower ``priority`` goes first."""
        self.flow = flow
        self.want = want
        self.rank = queued_at + priority * PRIORITY_STEP_S
        self.waiting = False


class _Line:
    """One flow's tickets by what they want, the first of each on top; those that left are skipped."""

    __slots__ = ("_heaps", "_number", "count", "flow", "stamp")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.count = 0
        self.stamp = 0  # of its entry in the order of flows
        self._number = 0
        self._heaps: dict[Hashable, list[tuple[float, int, Ticket]]] = {}

    def add(self, ticket: Ticket) -> None:
        self._number += 1
        heap = self._heaps.setdefault(ticket.want, [])
        if len(heap) > _LOOSE_ENTRIES + 2 * self.count:
            heap[:] = [entry for entry in heap if entry[2].waiting]
            heapify(heap)
        heappush(heap, (ticket.rank, self._number, ticket))
        self.count += 1

    def first(self, *, unless: Collection[Hashable]) -> Ticket | None:
        """The first ticket that wants something else than ``unless``."""
        best: tuple[float, int, Ticket] | None = None
        for want, heap in list(self._heaps.items()):
            while heap and not heap[0][2].waiting:
                heappop(heap)
            if not heap:
                del self._heaps[want]
            elif want not in unless and (best is None or heap[0] < best):
                best = heap[0]
        return None if best is None else best[2]

    def last(self) -> Ticket:
        """The ticket that would be served last."""
        return max(entry for heap in self._heaps.values() for entry in heap if entry[2].waiting)[2]


class FairQueue:
    """See the module.  Owner of its tickets' ``waiting``; one a pool and worker."""

    def __init__(self) -> None:
        self.waiting = 0
        self.wants: Counter[Hashable] = Counter()
        self._clock = VirtualClock()
        self._lines: dict[str, _Line] = {}
        self._order: list[tuple[float, int, str]] = []
        self._stamps = 0
        self._drain = Drain()

    # --- coming and going -----------------------------------------------------------------------------------------

    def weigh(self, flow: str, weight: float) -> None:
        """Set the weight of a flow, made with it if it is new."""
        line = self._lines.get(flow)
        if line is None:
            self._lines[flow] = _Line(Flow(flow, weight=weight))
        elif line.flow.weight != weight:
            line.flow.weight = weight
            if line.count:
                self._enter_order(line)

    def offer(self, ticket: Ticket, *, places: int, share: float, now: float) -> Ticket | None:
        """Have ``ticket`` wait; the ticket that had to go for it, if any.

        ``places``: how many may wait; ``share``: the part of them that the flow may have.  Its flow must have been
        weighed.  Raises QuotaExceeded when the flow has its part, QueueFull when nobody can go for it.
        """
        line = self._lines[ticket.flow]
        victim: Ticket | None = None
        if places > 0 and line.count >= max(1, int(share * places)) and share < 1.0:
            raise self._too_much(ticket.flow, now)
        if self.waiting >= places:
            victim = self._who_goes_for(line, places=places, now=now)
            self.leave(victim)
        ticket.waiting = True
        line.add(ticket)
        self.waiting += 1
        self.wants[ticket.want] += 1
        if line.count == 1:
            line.flow.begin(self._clock.now)
            self._enter_order(line)
        return victim

    def leave(self, ticket: Ticket) -> None:
        """``ticket`` waits no longer, unserved; nothing happens when it does not wait."""
        if not ticket.waiting:
            return
        ticket.waiting = False
        self._lines[ticket.flow].count -= 1
        self.waiting -= 1
        self.wants[ticket.want] -= 1
        if not self.wants[ticket.want]:
            del self.wants[ticket.want]

    def _who_goes_for(self, line: _Line, *, places: int, now: float) -> Ticket:
        waiting = [it for it in self._lines.values() if it.count]
        if places <= 0 or not waiting:
            raise QueueFull("no request can wait here at present", retry_after_s=self.retry_after_s(now))
        heaviest = max(waiting, key=lambda it: it.count / it.flow.weight)
        if heaviest is not line and heaviest.count / heaviest.flow.weight > (line.count + 1) / line.flow.weight:
            return heaviest.last()
        weights = sum(it.flow.weight for it in waiting) + (0.0 if line.count else line.flow.weight)
        if len(waiting) > 1 and line.count >= places * line.flow.weight / weights:
            raise self._too_much(line.flow.name, now)
        raise QueueFull(f"{self.waiting} requests wait already", retry_after_s=self.retry_after_s(now))

    def _too_much(self, flow: str, now: float) -> QuotaExceeded:
        count = self._lines[flow].count
        return QuotaExceeded(
            f"{count} requests of this key wait already, its part of the queue",
            param="queue_share",
            retry_after_s=self.retry_after_s(now),
        )

    # --- being served ---------------------------------------------------------------------------------------------

    def first(self, *, unless: Collection[Hashable] = ()) -> Ticket | None:
        """The ticket that is next, of those that want something else than ``unless``."""
        passed: list[tuple[float, int, str]] = []
        found: Ticket | None = None
        while self._order and found is None:
            entry = heappop(self._order)
            if self._is_current(entry):
                passed.append(entry)
                found = self._lines[entry[2]].first(unless=unless)
        for entry in passed:
            heappush(self._order, entry)
        return found

    def serve(self, ticket: Ticket, *, now: float) -> float:
        """``ticket`` is served; what its flow is charged."""
        line = self._lines[ticket.flow]
        self.leave(ticket)
        charged = self._clock.serve(line.flow)
        self._drain.began(now)
        if line.count:
            self._enter_order(line)
        return charged

    def pass_by(self, flow: str, *, now: float) -> float:
        """A request of ``flow`` found room without waiting; what its flow is charged."""
        line = self._lines[flow]
        if not line.count:
            line.flow.begin(self._clock.now)
        self._drain.began(now)
        return self._clock.serve(line.flow)

    def freed(self, now: float) -> None:
        """A request that was served has ended: its place is free."""
        self._drain.freed(now)

    def settle(self, flow: str, *, charged: float, cost: float) -> None:
        """A request that was charged ``charged`` has ended, having cost ``cost`` tokens."""
        line = self._lines.get(flow)
        if line is not None:
            line.flow.correct(charged, cost)
            if line.count:
                self._enter_order(line)

    def _enter_order(self, line: _Line) -> None:
        """Put a flow that waits where its start says; an entry that it had before counts no more."""
        self._stamps += 1
        line.stamp = self._stamps
        if len(self._order) > _LOOSE_ENTRIES + 2 * len(self._lines):
            self._order = [entry for entry in self._order if self._is_current(entry)]
            heapify(self._order)
        heappush(self._order, (line.flow.start, line.stamp, line.flow.name))

    def _is_current(self, entry: tuple[float, int, str]) -> bool:
        line = self._lines.get(entry[2])
        return line is not None and line.count > 0 and line.stamp == entry[1]

    # --- what is known --------------------------------------------------------------------------------------------

    def counts(self) -> Iterator[tuple[str, int]]:
        """Flows that wait, with how many of each."""
        return ((name, line.count) for name, line in self._lines.items() if line.count)

    def retry_after_s(self, now: float) -> float:
        """When it would be a newcomer's turn: as many as wait and one more, at the pace of the last half minute."""
        return self._drain.wait_s(self.waiting + 1, now)

    def forget(self, keep: Collection[str]) -> None:
        """Let go of flows that are not in ``keep`` and of which nothing waits."""
        for name in [name for name, line in self._lines.items() if name not in keep and not line.count]:
            del self._lines[name]
