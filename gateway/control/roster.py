"""The workers as control knows them: who is connected, what they hold, and what they have counted.

Owned by the control loop.  Counters are the workers' own, cumulative since each worker started: what a worker adds is
added to totals that outlive it, so nothing falls when a worker ends, and a worker that comes back after its connection
broke is not counted twice.  What a worker holds leaves with its connection.  Must not decide about backends.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from gateway.control.demand import Demand, Flows, demand_of
from gateway.control.link import WorkerRef
from gateway.core.admission.ledger import Ledger
from gateway.core.admission.shares import ShareBook, Want
from gateway.core.link.messages import HEARTBEAT_S, DrainAck, Heartbeat, Shares
from gateway.core.stream.summary import Outcome
from gateway.ports import WorkerReport
from gateway.telemetry.figures import OutcomeKey
from gateway.telemetry.labels import OTHER, ClosedSet

FRESH_S: Final = 4 * HEARTBEAT_S
"""A worker silent for longer is not fresh: it gets no new share of the limits."""

_REMEMBERED: Final = 256
"""Workers whose counters are remembered so that they are not counted twice when they come back."""

_MAX_ENDPOINTS: Final = 64

_Identity = tuple[int, float]
"""Process and start: what a worker is over all its connections."""


@dataclass(slots=True)
class _Counted:
    """What one worker has counted so far."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0
    tap_failures: int = 0


@dataclass(slots=True)
class _Worker:
    """One connected worker."""

    heard_at: float
    beat: Heartbeat | None = None
    silent: bool = False
    acks: dict[str, DrainAck] = field(default_factory=dict)
    shares: Shares | None = None

    @property
    def holding(self) -> int:
        return self.beat.holding if self.beat is not None else 0

    def in_flight(self, backend: str) -> int:
        return self.beat.in_flight.get(backend, 0) if self.beat is not None else 0


class Roster:
    """See the module.  ``models`` and ``backends`` are the closed sets of names that outcomes are counted under."""

    def __init__(
        self,
        *,
        models: ClosedSet,
        backends: ClosedSet,
        shares: ShareBook,
        ledger: Ledger | None = None,
        workers: int = 1,
    ) -> None:
        """``shares``: of the limit of requests in flight, which the roster has shared out; ``ledger``: all others."""
        self._shares = shares
        self.ledger = ledger or Ledger(workers=workers, inherited=False)
        self.lone = workers == 1
        self.places: Mapping[str, tuple[str, int]] = {}
        self.weights: Mapping[str, float] = {}
        self.refusals: Counter[str] = Counter()
        self._workers: dict[WorkerRef, _Worker] = {}
        self._counted: OrderedDict[_Identity, _Counted] = OrderedDict()
        self._models = models
        self._backends = backends
        self._endpoints: set[str] = set()
        self.totals: Counter[OutcomeKey] = Counter()
        self.dropped = 0
        self.tap_failures = 0
        self.stop_by: float | None = None
        """When (monotonic) a stop of the whole gateway ends what is open; None while it is not being stopped."""

    # --- what happens ---------------------------------------------------------------------------------------------

    def join(self, worker: WorkerRef, *, now: float) -> None:
        """A worker has said hello; a connection that the same worker had before is forgotten."""
        for ref in [ref for ref in self._workers if _identity(ref) == _identity(worker)]:
            del self._workers[ref]
        self._workers[worker] = _Worker(heard_at=now)
        self._shares.join(_identity(worker), worker.slot, now=now)
        self.ledger.join(_identity(worker), worker.slot, now=now)

    def leave(self, worker: WorkerRef, *, now: float) -> int | None:
        """A worker's connection has closed; what it last held, None for one that never said hello."""
        gone = self._workers.pop(worker, None)
        if gone is None:
            return None
        self._shares.leave(_identity(worker), now=now)
        self.ledger.leave(_identity(worker), now=now)
        return gone.holding

    def beat(self, worker: WorkerRef, beat: Heartbeat, *, now: float) -> int:
        """A heartbeat came; how many records it says were dropped since the last one."""
        known = self._workers.get(worker)
        if known is None:
            return 0
        known.beat, known.heard_at, known.silent = beat, now, False
        self.stop_by = beat.stop_by  # workers are stopped together; stays when the last of them has gone
        self._shares.beat(_identity(worker), holding=beat.holding, share=beat.share)
        self.ledger.beat(_identity(worker), beat.claims)
        return self._count(_identity(worker), beat)

    def has_spoken(self, worker: WorkerRef) -> bool:
        """Whether a heartbeat came over this connection."""
        known = self._workers.get(worker)
        return known is not None and known.beat is not None

    def acknowledge(self, worker: WorkerRef, ack: DrainAck) -> None:
        """A worker tells what it still has open on a backend that drains."""
        if (known := self._workers.get(worker)) is not None:
            known.acks[ack.backend] = ack

    def fell_silent(self, *, now: float) -> list[tuple[WorkerRef, float]]:
        """Workers that have just become silent, each told once, with the time since their last sign."""
        found = []
        for ref, worker in self._workers.items():
            silent_s = now - worker.heard_at
            if silent_s > FRESH_S and not worker.silent:
                worker.silent = True
                found.append((ref, silent_s))
        return found

    def new_shares(self, limit: int, *, now: float) -> list[tuple[WorkerRef, Shares]]:
        """Each worker's share of ``limit`` requests in flight and the others' load, where one of them changed.

        Whoever has not said yet what it holds is told nothing.  While no worker is fresh, nobody is raised.
        """
        fresh = [_identity(ref) for ref, worker in self._workers.items() if now - worker.heard_at <= FRESH_S]
        self._shares.share_out(limit, fresh=fresh, now=now)
        demand = demand_of(self._flows(), self.weights)
        self.ledger.share_out(fresh=fresh, now=now, wants=lambda resource: self._wants(resource, demand))
        load = self.in_flight()
        changed = []
        for ref, worker in self._workers.items():
            share = self._shares.told(_identity(ref))
            if share is None:
                continue
            others = {name: count - worker.in_flight(name) for name, count in load.items()}
            shares = Shares(
                in_flight_limit=share,
                others_in_flight={name: count for name, count in others.items() if count > 0},
                parts=demand.parts.get(_identity(ref), {}),
                spent=self.ledger.spent() if self.lone else {},
            )
            limits = {} if self.lone else self.ledger.news(_identity(ref))
            if limits or shares != worker.shares:
                worker.shares = shares
                changed.append((ref, replace(shares, limits=limits)))
        return changed

    def _flows(self) -> dict[Hashable, Flows]:
        return {_identity(ref): it.beat.flows for ref, it in self._workers.items() if it.beat is not None}

    def _wants(self, resource: str, demand: Demand) -> dict[Hashable, Want] | None:
        """Who asks for places on a backend, each pool's demand divided over its backends."""
        if resource not in self.places:
            return None
        pool, backends = self.places[resource]
        wants = demand.wants.get(pool, {})
        return {worker: Want(-(-want.waiting // backends), want.weight) for worker, want in wants.items()}

    # --- what is known --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._workers)

    def beats(self) -> tuple[Heartbeat, ...]:
        """The last heartbeat of each worker."""
        return tuple(it.beat for it in self._workers.values() if it.beat is not None)

    @property
    def holding(self) -> int:
        """Requests admitted and not settled, over all workers."""
        return sum(worker.holding for worker in self._workers.values())

    def in_flight(self) -> dict[str, int]:
        """Requests on each backend, over all workers."""
        load: Counter[str] = Counter()
        for worker in self._workers.values():
            if worker.beat is not None:
                load.update(worker.beat.in_flight)
        return {name: count for name, count in load.items() if count > 0}

    def undrained(self, backend: str, generation: int) -> tuple[WorkerRef, ...]:
        """Connected workers that have not yet said, under ``generation`` or later, that ``backend`` is empty.

        Empty, together with an engine that reports nothing running, is what drained means.
        """
        return tuple(
            ref
            for ref, worker in self._workers.items()
            if (ack := worker.acks.get(backend)) is None or ack.generation < generation or ack.in_flight > 0
        )

    def silent_s(self, *, now: float) -> dict[int, float]:
        """Time since each worker's last sign, by process."""
        return {ref.pid: max(0.0, now - worker.heard_at) for ref, worker in self._workers.items()}

    def reports(self, *, now: float) -> tuple[WorkerReport, ...]:
        """Every worker for operators, by slot."""
        return tuple(
            WorkerReport(
                slot=ref.slot,
                pid=ref.pid,
                started_wall=ref.started_wall,
                generation=worker.beat.generation if worker.beat is not None else 0,
                in_flight=worker.holding,
                connections=worker.beat.connections if worker.beat is not None else 0,
                dropped=worker.beat.dropped if worker.beat is not None else 0,
                fresh=now - worker.heard_at <= FRESH_S,
            )
            for ref, worker in sorted(self._workers.items(), key=lambda item: (item[0].slot, item[0].session))
        )

    def requests_by(self, key: Callable[[OutcomeKey], str]) -> dict[str, int]:
        """Totals summed by what ``key`` takes of them."""
        sums: Counter[str] = Counter()
        for outcome, count in self.totals.items():
            sums[key(outcome)] += count
        return dict(sums)

    # --- counting -------------------------------------------------------------------------------------------------

    def _count(self, identity: _Identity, beat: Heartbeat) -> int:
        counted = self._counted.setdefault(identity, _Counted())
        self._counted.move_to_end(identity)
        while len(self._counted) > _REMEMBERED:
            self._counted.popitem(last=False)
        for key, count in beat.outcomes.items():
            gained = count - counted.outcomes.get(key, 0)
            if gained > 0:
                self.totals[self._key(key)] += gained
        for key, count in beat.refusals.items():
            self.refusals[key] += max(0, count - counted.refusals.get(key, 0))
        dropped = max(0, beat.dropped - counted.dropped)
        self.dropped += dropped
        self.tap_failures += max(0, beat.tap_failures - counted.tap_failures)
        counted.outcomes, counted.refusals = beat.outcomes, beat.refusals
        counted.dropped, counted.tap_failures = beat.dropped, beat.tap_failures
        return dropped

    def _key(self, text: str) -> OutcomeKey:
        """A heartbeat's "endpoint|model|backend|outcome|status" as closed labels; a model's name may hold bars."""
        endpoint, _, rest = text.partition("|")
        rest, _, status = rest.rpartition("|")
        rest, _, outcome = rest.rpartition("|")
        model, _, backend = rest.rpartition("|")
        return OutcomeKey(
            endpoint=self._endpoint(endpoint),
            model=self._models.label(model),
            backend=self._backends.label(backend),
            outcome=outcome if outcome in set(Outcome) else OTHER,
            status=f"{status[0]}xx" if len(status) == 3 and status[0] in "12345" else "none",
        )

    def _endpoint(self, name: str) -> str:
        if len(self._endpoints) < _MAX_ENDPOINTS:
            self._endpoints.add(name)
        return name if name in self._endpoints else OTHER


def _identity(worker: WorkerRef) -> _Identity:
    return worker.pid, worker.started_wall
