"""All that control decides, without doing any of it: one event in, actions out.

The single writer of fleet and roster, which it owns.  Nothing is published before every backend was looked at once or
the time for that is over: a control that has just started knows nothing, and workers serve better on their last
snapshot than on one full of unknowns.  Must not do I/O, wait or read a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, assert_never

from gateway.control import inbox
from gateway.control.blame import failed_within_its_answer
from gateway.control.clients import Clients, share_limits
from gateway.control.inbox import Action, Event
from gateway.control.lessons import Lessons
from gateway.control.link import WorkerRef
from gateway.control.probe import HEALTH_PATH, METRICS_PATH, MODELS_PATH
from gateway.control.roster import Roster
from gateway.control.tellings import reading, told
from gateway.core.admission.usage import KeyUsage
from gateway.core.link.messages import (
    AskUsage,
    BackendFailure,
    DrainAck,
    Heartbeat,
    Hello,
    NewKeys,
    NewSnapshot,
    Pulse,
    RequestRecord,
    Settled,
    UsageTold,
)
from gateway.core.routing.backend import BackendState
from gateway.core.routing.evidence import HealthEvent, Probed, ProbeResult, RequestFailed, RequestsSucceeded, Restarted
from gateway.core.routing.inventory import unreported
from gateway.core.routing.snapshot import Snapshot
from gateway.core.stream.summary import Outcome
from gateway.errors import BackendError
from gateway.fleet import Fleet
from gateway.telemetry.events import EventName

_SHOWN_MODELS: Final = 10
"""How many of a pool's models are told with those that are missing."""


Order = inbox.ConfigRead | inbox.KeysRead | inbox.KeysBad | inbox.QuarantineLifted | inbox.AdaptersOrdered


class ControlState:
    """See the module.  ``fleet``, ``roster`` and ``clients`` may be read by others to report."""

    def __init__(self, fleet: Fleet, roster: Roster, *, clients: Clients | None = None) -> None:
        """``clients``: what is known of them and their keys; without it nobody is asked for one."""
        self.fleet = fleet
        self.roster = roster
        self.lessons = Lessons(fleet.runtime)
        self.clients = clients or Clients()
        self._unseen: set[str] | None = set(fleet.configs())
        self._published = 0
        self._told_problems: dict[tuple[str, str], str] = {}
        self._told_unreported: dict[str, tuple[str, ...]] = {}

    @property
    def open(self) -> bool:
        """Whether the first look at all backends is over."""
        return self._unseen is None

    def begin(self, *, now: float = 0.0) -> list[Action]:
        """What to do first: watch every backend."""
        share_limits(self.clients, self.fleet.runtime.pools, self.roster, now=now)
        return [self._watch()]

    def step(self, event: Event, *, now: float, now_wall: float = 0.0) -> list[Action]:
        """Take in ``event``; the actions are to be performed in their order."""
        self.clients.now_wall = now_wall
        actions = list(self._decide(event, now))
        if self.open:
            actions += self._publish()
        return actions

    def _decide(self, event: Event, now: float) -> Iterator[Action]:
        match event:
            case inbox.HealthNews():
                yield from self._health(event, now)
            case inbox.ModelsRead():
                yield from self._models(event)
            case inbox.NumbersRead():
                yield from self._numbers(event, now)
            case inbox.Unreadable():
                yield from self._unreadable(event)
            case inbox.WorkerSaid():
                yield from self._worker_said(event, now)
            case inbox.WorkerLeft(worker=worker):
                yield from self._worker_left(worker, now)
            case (
                inbox.ConfigRead()
                | inbox.KeysRead()
                | inbox.KeysBad()
                | inbox.QuarantineLifted()
                | inbox.AdaptersOrdered()
            ):
                yield from self._ordered(event, now)
            case inbox.RoundOver():
                self._unseen = None
            case inbox.Ticked():
                yield from self._tick(now)
            case _:
                assert_never(event)

    def _ordered(self, event: Order, now: float) -> Iterator[Action]:
        """A file was read, or an operator has said something."""
        match event:
            case inbox.ConfigRead(runtime=runtime):
                notice = self.fleet.configure(runtime, now=now)
                self._forget_removed()
                self.lessons.configure(runtime)
                yield self._watch()
                yield from told(notice)
                share_limits(self.clients, self.fleet.runtime.pools, self.roster, now=now)
            case inbox.KeysRead(keys=keys):
                yield from self.clients.replace(keys)
                share_limits(self.clients, self.fleet.runtime.pools, self.roster, now=now)
            case inbox.KeysBad(path=path, faults=faults):
                yield from self.clients.refuse(path, faults)
            case inbox.QuarantineLifted(fingerprint=fingerprint):
                yield from self.lessons.lift(fingerprint, now=now)
            case inbox.AdaptersOrdered(orders=orders):
                self.fleet.order_adapters(orders)
            case _:
                assert_never(event)

    def _watch(self) -> Action:
        return inbox.Watch(self.fleet.configs(), self.fleet.runtime.probes.timeout_s)

    def _publish(self) -> Iterator[Action]:
        snapshot = self.fleet.snapshot()
        if snapshot.generation != self._published:
            self._published = snapshot.generation
            serving = sum(backend.state is BackendState.SERVING for backend in snapshot.backends)
            yield inbox.Publish(snapshot)
            yield inbox.Tell(
                EventName.SNAPSHOT_PUBLISHED,
                {"generation": snapshot.generation, "workers": len(self.roster), "serving": serving},
            )
            yield from self._unreported(snapshot)

    def _unreported(self, snapshot: Snapshot) -> Iterator[Action]:
        """Models that a pool names and nobody reports: told when that changes."""
        for pool, missing in unreported(snapshot).items():
            if missing == self._told_unreported.get(pool, ()):
                continue
            self._told_unreported[pool] = missing
            if missing:
                of_pool = (backend.models for backend in snapshot.backends if backend.pool == pool)
                reported = list(dict.fromkeys(model for models in of_pool for model in models))[:_SHOWN_MODELS]
                fields = {"pool": pool, "missing": missing, "reported": reported}
                yield inbox.Tell(EventName.POOL_MODELS_MISSING, fields)
            else:
                yield inbox.Tell(EventName.POOL_MODELS_COMPLETE, {"pool": pool})

    def _forget_removed(self) -> None:
        backends, pools = self.fleet.configs(), {pool.name for pool in self.fleet.runtime.pools}
        self._told_problems = {key: told for key, told in self._told_problems.items() if key[0] in backends}
        self._told_unreported = {pool: told for pool, told in self._told_unreported.items() if pool in pools}

    # --- backends -------------------------------------------------------------------------------------------------

    def _health(self, news: inbox.HealthNews, now: float) -> Iterator[Action]:
        if isinstance(news.event, Probed):
            self.fleet.probed(news.backend, now=now)
            yield inbox.CountProbe(news.backend, HEALTH_PATH, news.event.result.name.lower())
        yield from self._noticed(news.backend, news.event, now)
        yield from self.lessons.seen(news.backend, news.event, now=now)
        if self._unseen is not None:
            self._unseen.discard(news.backend)
            if not self._unseen:
                self._unseen = None

    def _noticed(self, backend: str, event: HealthEvent, now: float) -> Iterator[Action]:
        notice = self.fleet.notice(backend, event, now=now)
        if notice.probe_now:
            yield inbox.ProbeNow(backend)
        yield from told(notice)

    def _models(self, news: inbox.ModelsRead) -> Iterator[Action]:
        yield inbox.CountProbe(news.backend, MODELS_PATH, ProbeResult.OK.name.lower())
        yield from self._readable(news.backend, MODELS_PATH)
        if self.fleet.discovered(news.backend, news.cards, version=news.version):
            models = [card.id for card in news.cards]
            yield inbox.Tell(
                EventName.BACKEND_MODELS, {"backend": news.backend, "models": models, "version": news.version}
            )

    def _numbers(self, news: inbox.NumbersRead, now: float) -> Iterator[Action]:
        yield inbox.CountProbe(news.backend, METRICS_PATH, ProbeResult.OK.name.lower())
        yield from self._readable(news.backend, METRICS_PATH)
        if (restart := self.fleet.read(news.backend, news.reading)) is not None:
            before, after = restart
            yield from self._noticed(news.backend, Restarted(at=after.read_at), now)
            yield from self.lessons.restarted(news.backend, since=before.read_at, now=now)
            yield inbox.ReadModels(news.backend)
            yield inbox.Tell(
                EventName.BACKEND_RESTARTED,
                {
                    "backend": news.backend,
                    "tokens_before": before.generation_tokens,
                    "tokens_now": after.generation_tokens,
                },
            )
        if (since := self.fleet.serving_since(news.backend)) is not None:
            ours = self.roster.in_flight().get(news.backend, 0)
            self.lessons.read(news.backend, news.reading, serving_since=since, ours=ours)
        if news.reading.generation_tokens is not None:
            tokens, read_at = news.reading.generation_tokens, news.reading.read_at
            yield inbox.Broadcast(Pulse(backend=news.backend, generation_tokens=tokens, read_at=read_at))

    def _unreadable(self, news: inbox.Unreadable) -> Iterator[Action]:
        yield inbox.CountProbe(news.backend, news.path, news.result)
        if news.path == METRICS_PATH:
            self.fleet.read(news.backend, None)
        key = news.backend, news.path
        serving = self.fleet.state(news.backend) is BackendState.SERVING
        if serving and self._told_problems.get(key) != news.detail:
            self._told_problems[key] = news.detail
            yield reading(news.backend, news.path, problem=news.detail)

    def _readable(self, backend: str, path: str) -> Iterator[Action]:
        if self._told_problems.pop((backend, path), ""):
            yield reading(backend, path, problem="")

    # --- workers --------------------------------------------------------------------------------------------------

    def _worker_said(self, event: inbox.WorkerSaid, now: float) -> Iterator[Action]:
        worker = event.worker
        match event.message:
            case Hello():
                self.roster.join(worker, now=now)
                yield inbox.Tell(EventName.WORKER_JOINED, {"slot": worker.slot, "pid": worker.pid})
                if self.clients.keys is not None:
                    yield inbox.SendTo(worker, NewKeys(keys=self.clients.keys))
                if self.open:
                    yield inbox.SendTo(worker, NewSnapshot(snapshot=self.fleet.snapshot()))
                yield from self.lessons.greet(worker)
            case Heartbeat() as beat:
                first = not self.roster.has_spoken(worker)
                if dropped := self.roster.beat(worker, beat, now=now):
                    fields = {"slot": worker.slot, "pid": worker.pid, "count": dropped}
                    yield inbox.Tell(EventName.RECORDS_DROPPED, fields)
                if first:  # it has no share yet and waits for one
                    yield from self._share_out(now)
            case Settled(records=records, failures=failures):
                yield from self._settled(records, failures, now)
            case DrainAck() as ack:
                self.roster.acknowledge(worker, ack)
            case AskUsage(number=number, key_id=key_id):
                yield inbox.SendTo(worker, UsageTold(number=number, usage=self._used(key_id, now)))
            case _:
                assert_never(event.message)

    def _used(self, key_id: str, now: float) -> KeyUsage:
        return self.clients.usage_of(key_id, now, held=self.roster.ledger.held)

    def _settled(self, records: list[RequestRecord], failures: list[BackendFailure], now: float) -> Iterator[Action]:
        if records:
            yield inbox.Ingest(tuple(records))
            self.clients.count(records, now)
        succeeded = Counter(record.backend for record in records if record.outcome is Outcome.OK and record.backend)
        for backend, count in succeeded.items():
            yield from self._noticed(backend, RequestsSucceeded(count=count), now)
        for failure in failures:
            yield from self._noticed(failure.backend, RequestFailed(code=failure.code, at=failure.at), now)
        yield from self.lessons.attempts(failures, now=now)
        for record in records:
            if failed_within_its_answer(record):
                yield from self._noticed(record.backend, RequestFailed(code=BackendError.code, at=now), now)

    def _worker_left(self, worker: WorkerRef, now: float) -> Iterator[Action]:
        in_flight = self.roster.leave(worker, now=now)
        if in_flight is not None:
            fields = {"slot": worker.slot, "pid": worker.pid, "in_flight": in_flight}
            yield inbox.Tell(EventName.WORKER_GONE, fields)

    def _tick(self, now: float) -> Iterator[Action]:
        for worker, silent_s in self.roster.fell_silent(now=now):
            fields = {"slot": worker.slot, "pid": worker.pid, "silent_s": round(silent_s, 3)}
            yield inbox.Tell(EventName.WORKER_SILENT, fields)
        if self.clients.turn():
            self.roster.ledger.new_day()
        yield from self._share_out(now)
        yield from self.lessons.tick(now=now)

    def _share_out(self, now: float) -> Iterator[Action]:
        for worker, shares in self.roster.new_shares(self.fleet.runtime.limits.in_flight, now=now):
            yield inbox.SendTo(worker, shares)
