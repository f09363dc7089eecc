"""Station route: which backend, and the worker's own count of what is in flight where.

Owner of this worker's view of the fleet (the latest snapshot), its in-flight counts and its pulses.  A lease is one
request's hold on a backend, from the choice to the end, whatever the end is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from gateway.core.admission.drain import WAIT_MIN_S, Drain
from gateway.core.admission.limits import admit_one
from gateway.core.link.messages import (
    ControlMessage,
    DrainAck,
    NewKeys,
    NewSnapshot,
    Pace,
    Pulse,
    Quarantine,
    Refused,
    Shares,
    UsageTold,
)
from gateway.core.routing.backend import BackendState
from gateway.core.routing.select import candidates, least_in_flight, pool_for
from gateway.core.routing.snapshot import BackendView, Snapshot
from gateway.core.stream.silence import PulseReading, PulseTrack
from gateway.errors import NothingServing
from gateway.proxy.balance import Balancer
from gateway.proxy.intake import Intake
from gateway.proxy.lease import Admission, Lease
from gateway.proxy.ward import Ward

SUSPECT_S = 1.0
"""How long a backend that just refused a connection is passed over, if there is another; control decides for good."""

NEVER = float("-inf")

RETRY_AFTER_S = 2.0
"""What clients are told while the gateway stops."""


class Desk:
    """See the module; one a worker."""

    def __init__(
        self,
        *,
        slot: int,
        clock: Callable[[], float],
        acknowledge: Callable[[DrainAck], None],
        share: int | None = None,
    ) -> None:
        """``share``: of the limit, until control tells another; None: all of it, for a worker that has no sibling."""
        self.snapshot = Snapshot(generation=0, pools=(), backends=())
        self.in_flight: dict[str, int] = {}
        self.holding = 0
        self.stopping = False
        self.quiet = asyncio.Event()
        self.quiet.set()
        self.balance = Balancer(clock=clock)
        self.ward = Ward(clock=clock)
        self.intake = Intake()
        self._slot = slot
        self._clock = clock
        self._acknowledge = acknowledge
        self.share = share
        self._others: dict[str, int] = {}
        self._pulses: dict[str, PulseTrack] = {}
        self._crowded_at: dict[str, float] = {}
        self._suspect_since: dict[str, float] = {}
        self._pool_of: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._eligible: dict[tuple[str, str], list[BackendView]] = {}
        self._turn = 0
        self.crowd: Drain | None = None  # how fast places become free, once there was none
        self.on_news: Callable[[ControlMessage], None] = lambda _: None  # after it was taken in
        self.on_free: Callable[[str], None] | None = None  # a lease of that backend has ended

    @property
    def serving(self) -> bool:
        """Whether a request would find a backend."""
        return any(b.state is BackendState.SERVING for b in self.snapshot.backends)

    @property
    def away_s(self) -> float:
        """When to come back while nothing serves: the next look at the backends may find one well."""
        return self.snapshot.policy.away_s

    def apply(self, message: ControlMessage) -> None:
        """Take in what control says."""
        match message:
            case NewSnapshot(snapshot=snapshot):
                self._replace(snapshot)
            case Shares(in_flight_limit=limit, others_in_flight=others):
                self.share = limit
                self._others = others
            case Pulse(backend=backend, generation_tokens=tokens, read_at=read_at):
                self.pulses(backend).add(PulseReading(read_at, tokens))
            case Pace():
                self.balance.learn(message)
            case Quarantine():
                self.ward.apply(message)
            case Refused() | NewKeys() | UsageTold():
                pass  # the link reports it; the keyring's and the usage desk's affair
        self.on_news(message)

    def lost_control(self) -> None:
        """Nobody tells any more what the others hold: better not counted than counted as it once was."""
        self._others = {}

    def _replace(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.balance.follow(snapshot)
        self._pool_of.clear()
        self._eligible.clear()
        self._aliases = {alias.name: alias.model for pool in snapshot.pools for alias in pool.aliases}
        names = {b.name for b in snapshot.backends}
        for owned in (self._pulses, self._crowded_at, self._suspect_since):
            for name in [n for n in owned if n not in names]:
                del owned[name]
        for track in self._pulses.values():
            track.window_s = snapshot.policy.timers.silent_max_s
        for backend in snapshot.backends:
            if backend.state is BackendState.DRAINING:
                self._report_drain(backend.name)

    def _report_drain(self, backend: str) -> None:
        self._acknowledge(
            DrainAck(
                slot=self._slot,
                backend=backend,
                generation=self.snapshot.generation,
                in_flight=self.in_flight.get(backend, 0),
            )
        )

    def pulses(self, backend: str) -> PulseTrack:
        """The pulse readings of ``backend``."""
        track = self._pulses.get(backend)
        if track is None:
            track = self._pulses[backend] = PulseTrack(window_s=self.snapshot.policy.timers.silent_max_s)
        return track

    def enter(self) -> Admission:
        """Hold one of the places that this worker may fill.  Raises Overloaded."""
        limit = self.snapshot.policy.limits.in_flight
        share = limit if self.share is None else self.share
        admit_one(holding=self.holding, share=share, free_in_s=self._place_free_in_s)
        return Admission(self)

    def _place_free_in_s(self) -> float:
        """When one of all requests will have ended, at the pace since the first one was turned away."""
        now = self._clock()
        if self.crowd is not None:
            return self.crowd.wait_s(1, now)
        self.crowd = Drain()
        self.crowd.began(now)
        return WAIT_MIN_S

    def freed(self, crowd: Drain) -> None:
        """A request has given its place back, and others were turned away."""
        crowd.freed(self._clock())

    def meant_by(self, model: str) -> str:
        """The model that engines know under the name that a client uses."""
        return self._aliases.get(model, model)

    def pool_for(self, model: str) -> str:
        """The pool that serves ``model``, worked out once a snapshot.  Raises UnknownModel or NothingServing."""
        pool = self._pool_of.get(model)
        if pool is None:  # only names that are served are kept: clients cannot make this grow
            pool = self._pool_of[model] = pool_for(self.snapshot, model)
        return pool

    def lease(self, *, pool: str, model: str, tried: Collection[str], session: int | None = None) -> Lease:
        """Choose a backend and hold it.  Raises NothingServing."""
        eligible = self._candidates(pool, model, tried=tried)
        trusted = self._trusted(eligible) if self._suspect_since else eligible
        chosen = self._choose(trusted or eligible, session)
        if chosen is None:
            raise NothingServing("no backend is serving this model at present", retry_after_s=self.away_s)
        return Lease(self, chosen)

    def _choose(self, backends: list[BackendView], session: int | None) -> BackendView | None:
        self._turn += 1
        if self.balance.plain:
            return least_in_flight(backends, self._load, turn=self._turn)
        return self.balance.choose(backends, self._load, session=session, turn=self._turn)

    def hold(self, backend: BackendView) -> Lease:
        """Hold ``backend``, that no other can stand in for."""
        return Lease(self, backend)

    def lease_within(
        self,
        *,
        pool: str,
        model: str,
        tried: Collection[str],
        room: Callable[[str], bool],
        patient: bool,
        session: int | None = None,
        only: BackendView | None = None,
    ) -> Lease | None:
        """Like :meth:`lease`, of the backends that have ``room``; None when there is none.

        ``patient``: rather none than one that refused a connection a moment ago.  ``only``: no other one can answer.
        """
        eligible = [b for b in self._candidates(pool, model, tried=tried, only=only) if room(b.name)]
        trusted = self._trusted(eligible)
        chosen = self._choose(trusted if patient else trusted or eligible, session)
        return None if chosen is None else Lease(self, chosen)

    def can_serve(
        self, *, pool: str, model: str, tried: Collection[str], patient: bool, only: BackendView | None = None
    ) -> bool:
        """Whether there is a backend that :meth:`lease_within` could choose if it had room."""
        eligible = self._candidates(pool, model, tried=tried, only=only)
        return bool(self._trusted(eligible) if patient else eligible)

    def _trusted(self, eligible: list[BackendView]) -> list[BackendView]:
        suspects = self._suspect_since
        if not suspects:
            return eligible
        now = self._clock()
        return [b for b in eligible if now - suspects.get(b.name, NEVER) > SUSPECT_S]

    def _candidates(
        self, pool: str, model: str, *, tried: Collection[str], only: BackendView | None = None
    ) -> list[BackendView]:
        if only is not None:
            return [it for it in candidates(self.snapshot, pool, model, tried=tried) if it.name == only.name]
        if tried:
            return candidates(self.snapshot, pool, model, tried=tried)
        eligible = self._eligible.get((pool, model))
        if eligible is None:
            eligible = self._eligible[pool, model] = candidates(self.snapshot, pool, model, tried=())
        return eligible

    def has_other(self, *, pool: str, model: str, tried: Collection[str]) -> bool:
        """Whether a backend is left that has not been tried."""
        return bool(candidates(self.snapshot, pool, model, tried=tried))

    def free_in_s(self, *, pool: str, model: str) -> float:
        """When a backend may take a request that all of them turned down; 0: now."""
        return self.balance.free_in_s(self._candidates(pool, model, tried=()))

    def is_stopping(self, backend: str) -> bool:
        """Whether we ourselves are ending ``backend``, as of now."""
        return any(b.stopping for b in self.snapshot.backends if b.name == backend)

    def suspect(self, backend: str) -> None:
        """``backend`` refused a connection just now."""
        self._suspect_since[backend] = self._clock()

    def _load(self, backend: str) -> int:
        return self.in_flight.get(backend, 0) + self._others.get(backend, 0)

    def took(self, backend: str) -> float:
        """A lease begins; returns when."""
        now = self._clock()
        count = self.in_flight.get(backend, 0)
        if count:
            self._crowded_at[backend] = now
        self.in_flight[backend] = count + 1
        return now

    def gave_back(self, backend: str) -> None:
        """A lease ends."""
        left = self.in_flight[backend] - 1
        if left:
            self.in_flight[backend] = left
        else:
            del self.in_flight[backend]
            if any(b.name == backend and b.state is BackendState.DRAINING for b in self.snapshot.backends):
                self._report_drain(backend)
        if self.on_free is not None:
            self.on_free(backend)

    def was_alone(self, backend: str, since: float) -> bool:
        """Whether no other request of this worker was in flight on ``backend`` at any time from ``since`` to now."""
        return self._crowded_at.get(backend, NEVER) < since and self.in_flight.get(backend, 0) == 1
