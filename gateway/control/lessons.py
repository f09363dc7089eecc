"""What control learns of engines for the choice of a backend: how fast they are, and which requests they die of.

Owner of the measured curves, of the book of strikes, and of what workers were told of both.  Part of the control state:
events in, actions out, nothing waits.  Curves go out seldom and only where a pool routes by them; what is quarantined
goes out at once, what is only suspected with the next tick.  Must not decide about the health of a backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, assert_never

from gateway.control import inbox
from gateway.control.inbox import Action
from gateway.control.link import WorkerRef
from gateway.core.link.messages import BackendFailure, Pace, Quarantine
from gateway.core.routing.curve import OLD_S, Curve, CurveBook, differs
from gateway.core.routing.evidence import ENDED_WELL, ENGINE_DEAD, HealthEvent, Probed, ProbeResult
from gateway.core.routing.poison import PoisonBook, Quarantined, Released, Verdict
from gateway.core.routing.policy import PoisonPolicy, Policy
from gateway.core.routing.reading import EngineReading
from gateway.settings import Runtime
from gateway.telemetry.events import EventName

TELL_S: Final = 3.0
"""Between two curves of one backend, at least: they move slowly, and each costs every worker its predictions."""

MANY: Final = 0.25
"""Strangers are told when their number has changed by more than this part, and by more than one."""

ILL: Final = frozenset({ProbeResult.REFUSED, ProbeResult.UNREACHABLE, ProbeResult.BAD_STATUS})
"""Results of probes that confirm a death.  A busy engine answers late."""


class Lessons:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self.poison = PoisonBook()
        self._books: dict[str, CurveBook] = {}
        self._slow_start_s: dict[str, float] = {}
        self._routed: frozenset[str] = frozenset()
        self._told: dict[str, tuple[float, Pace]] = {}
        self._told_changes = 0
        self._told_quarantined: tuple[Quarantined, ...] = ()
        self.configure(runtime)

    def configure(self, runtime: Runtime) -> None:
        """The backends are these now."""
        backends = {it.name: pool for pool in runtime.pools for it in pool.backends}
        self._books = {name: self._books.get(name) or CurveBook() for name in backends}
        self._slow_start_s = {name: pool.routing.slow_start_s for name, pool in backends.items()}
        measured = Policy.MEASURED_RATE.value
        self._routed = frozenset(name for name, pool in backends.items() if pool.routing.policy == measured)
        self._told = {name: told for name, told in self._told.items() if name in self._routed}
        self.poison.configure(PoisonPolicy(**runtime.poison.model_dump()))

    # --- how fast engines are -------------------------------------------------------------------------------------

    def read(self, backend: str, reading: EngineReading, *, serving_since: float, ours: int | None = None) -> None:
        """An engine's numbers, and how many of its requests are ours; those of its slow start do not count."""
        book = self._books.get(backend)
        if book is not None and reading.read_at - serving_since >= self._slow_start_s[backend]:
            book.add(reading, ours=ours)

    def curve(self, backend: str) -> Curve:
        """What is known of a backend's pace."""
        book = self._books.get(backend)
        return () if book is None else book.curve()

    def _paces(self, now: float) -> Iterator[Action]:
        for name in self._routed:
            told_at, told = self._told.get(name, (-TELL_S, Pace(backend=name, curve=())))
            if now - told_at < TELL_S:
                continue
            book = self._books[name]
            pace = Pace(backend=name, curve=book.curve(), strangers=book.strangers(), old=book.is_old(now=now))
            if _is_news(told, pace) or (pace.old and now - told_at >= OLD_S):
                self._told[name] = now, pace
                yield inbox.Broadcast(pace)

    # --- what they die of -----------------------------------------------------------------------------------------

    def seen(self, backend: str, event: HealthEvent, *, now: float) -> Iterator[Action]:
        """A probe ended, or something else that says nothing of deaths."""
        if isinstance(event, Probed) and backend in self._books:
            if event.result is ProbeResult.OK:
                self.poison.well(backend, now=now)
            elif event.result in ILL:
                yield from self._judged(self.poison.ill(backend, now=now), now)

    def restarted(self, backend: str, *, since: float, now: float) -> Iterator[Action]:
        """Another process answers at ``backend``, whose predecessor was last seen at ``since``."""
        self._books[backend].forget()
        yield from self._judged(self.poison.restarted(backend, since=since, now=now), now)

    def attempts(self, failures: Iterable[BackendFailure], *, now: float) -> Iterator[Action]:
        """Requests ended of which a fingerprint is told."""
        for it in failures:
            if it.fingerprint and it.backend in self._books:
                yield from self._judged(self._attempt(it, now), now)

    def _attempt(self, failure: BackendFailure, now: float) -> list[Verdict]:
        name, at = failure.fingerprint, failure.at
        if failure.code == ENDED_WELL:
            return self.poison.completed(name, at=at)
        verdicts = self.poison.strike(name, failure.backend, at=at, now=now)
        return verdicts + self.poison.dead(failure.backend, at=at, now=now) if failure.code == ENGINE_DEAD else verdicts

    def lift(self, fingerprint: str, *, now: float) -> Iterator[Action]:
        """An operator lets requests with the fingerprint in again."""
        yield from self._judged(self.poison.lift(fingerprint), now)

    # --- what workers are told ------------------------------------------------------------------------------------

    def greet(self, worker: WorkerRef) -> Iterator[Action]:
        """A worker has connected: it knows nothing, or what it was told by an earlier life."""
        if self.poison.suspects or self.poison.quarantined:
            yield inbox.SendTo(worker, self._quarantine())
        for _, pace in self._told.values():
            yield inbox.SendTo(worker, pace)

    def tick(self, *, now: float) -> Iterator[Action]:
        """Forget what is over; tell what has changed."""
        yield from self._judged(self.poison.tick(now=now), now)
        if self.poison.changes != self._told_changes:
            yield self._tell()
        yield from self._paces(now)

    def _judged(self, verdicts: Iterable[Verdict], now: float) -> Iterator[Action]:
        for verdict in verdicts:
            yield _told(verdict, now)
        if self.poison.quarantined != self._told_quarantined:
            yield self._tell()

    def _tell(self) -> Action:
        self._told_changes, self._told_quarantined = self.poison.changes, self.poison.quarantined
        return inbox.Broadcast(self._quarantine())

    def _quarantine(self) -> Quarantine:
        until = {it.fingerprint: it.until for it in self.poison.quarantined}
        return Quarantine(suspects=self.poison.suspects, until=until)


def _is_news(told: Pace, now: Pace) -> bool:
    """Whether workers should hear it: the curve, or by how much more than a few the strangers, or how old it is."""
    strangers = abs(now.strangers - told.strangers)
    return differs(told.curve, now.curve) or told.old != now.old or strangers > max(1, MANY * told.strangers)


def _told(verdict: Verdict, now: float) -> Action:
    fields: Mapping[str, object]
    match verdict:
        case Quarantined(fingerprint=name, backends=backends, until=until):
            fields = {"fingerprint": name, "backends": backends, "for_s": round(until - now, 3)}
            return inbox.Tell(EventName.REQUEST_QUARANTINED, fields)
        case Released(fingerprint=name, why=why):
            return inbox.Tell(EventName.REQUEST_RELEASED, {"fingerprint": name, "reason": why.value})
        case _:
            assert_never(verdict)
