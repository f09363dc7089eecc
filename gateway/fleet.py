"""The fleet: the one owner of what each backend is, what it serves and what state it is in.

Stepped by the control loop with what probes, workers and the configuration say; makes the snapshot that workers serve
from, whose generation grows only when something in it has changed.  Every method returns at once.  Must not do I/O or
read a clock: ``now`` is monotonic, ``wall`` the time of day at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from gateway.core.routing.adapters import Orders
from gateway.core.routing.backend import BackendState
from gateway.core.routing.ejection import may_eject
from gateway.core.routing.evidence import HealthEvent, RequestFailed
from gateway.core.routing.health import Health, Kept, ProbeNow, begin, probe_period_s, step
from gateway.core.routing.inventory import renewed, union, unreported, with_aliases, without
from gateway.core.routing.notice import KeptServing, Notice, PoolChange, StateChange
from gateway.core.routing.reading import EngineReading, generation_tps, has_restarted
from gateway.core.routing.snapshot import Alias, BackendView, ModelCard, Snapshot
from gateway.ports import BackendReport, PoolReport
from gateway.settings import Backend, Runtime, health_policy, to_policy, to_pool_view, unwanted_adapters


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What one life of control tells the next about a backend, so that models are known before the first probe."""

    name: str
    url: str
    cards: tuple[ModelCard, ...]


@dataclass(slots=True)
class _Member:
    """One backend; owned by the fleet."""

    config: Backend
    pool: str
    health: Health
    cards: tuple[ModelCard, ...] = ()
    version: str = ""
    reading: EngineReading | None = None
    last_reading: EngineReading | None = None
    tps: float | None = None
    probed_at: float | None = None

    @property
    def serving(self) -> bool:
        return self.health.state is BackendState.SERVING


class Fleet:
    """See the module.  ``generation`` is that of the snapshot before the first; ``remembered`` comes from earlier."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        generation: int,
        now: float,
        remembered: Iterable[Remembered] = (),
        orders: Orders | None = None,
    ) -> None:
        self._runtime = runtime
        self._orders = orders or {}  # which LoRA adapters operators want, and which not
        self._health_policy = health_policy(runtime)
        self._snapshot = Snapshot(generation=generation, pools=(), backends=())
        self._changed = True
        self._members: dict[str, _Member] = {}
        self._down_since: dict[str, float] = {}
        _ = self.configure(runtime, now=now)
        known = {(it.name, it.url): it.cards for it in remembered}
        for name, member in self._members.items():
            member.cards = known.get((name, member.config.url), ())

    # --- what happens ---------------------------------------------------------------------------------------------

    def configure(self, runtime: Runtime, *, now: float) -> Notice:
        """Take over another configuration: backends that are as before keep their state, others begin anew."""
        old, self._members = self._members, {}
        for pool in runtime.pools:
            for config in pool.backends:
                before = old.get(config.name)
                if before is not None and (before.config, before.pool) == (config, pool.name):
                    self._members[config.name] = before
                    continue
                member = _Member(config, pool.name, begin(now, fresh=bool(old)))
                if before is not None and before.pool == pool.name:
                    member.cards = before.cards  # most likely the same model at another place; the first probe tells
                self._members[config.name] = member
        names = [pool.name for pool in runtime.pools]
        for name in names:
            self._inherit_models(name, old.values())
        self._down_since = {name: since for name, since in self._down_since.items() if name in names}
        self._runtime = runtime
        self._health_policy = health_policy(runtime)
        self._changed = True
        return Notice(pools=tuple(change for name in names for change in self._pool_changes(name, now)))

    def _inherit_models(self, pool: str, old: Iterable[_Member]) -> None:
        """Expect a pool whose backends were all replaced to serve what it did, so that no request waits for a probe."""
        members = [member for member in self._members.values() if member.pool == pool]
        known = next((member.cards for member in old if member.pool == pool and member.cards), ())
        if not any(member.cards for member in members):
            for member in members:
                member.cards = known

    def notice(self, name: str, event: HealthEvent, *, now: float) -> Notice:
        """Step the health of backend ``name``; nothing happens for one that is not in the fleet."""
        member = self._members.get(name)
        if member is None:
            return Notice()
        was = member.health.state
        spared = isinstance(event, RequestFailed) and not self._may_eject(member.pool)
        since = member.health.serving_since
        done = step(member.health, event, policy=self._health_policy, now=now, may_eject=not spared)
        member.health = done.state
        probe_now = any(isinstance(action, ProbeNow) for action in done.actions)
        if done.state.state is was:
            self._changed |= done.state.serving_since != since
            kept = tuple(KeptServing(name, member.pool, done.reason) for it in done.actions if isinstance(it, Kept))
            return Notice(kept=kept, probe_now=probe_now)
        self._changed = True
        change = StateChange(backend=name, pool=member.pool, was=was, state=done.state.state, reason=done.reason)
        return Notice(states=(change,), pools=self._pool_changes(member.pool, now), probe_now=probe_now)

    def _may_eject(self, name: str) -> bool:
        share = next(pool.routing.max_ejected for pool in self._runtime.pools if pool.name == name)
        return may_eject([it.health for it in self._members.values() if it.pool == name], share=share)

    def probed(self, name: str, *, now: float) -> None:
        """A probe of ``name`` ended, whatever its result."""
        if (member := self._members.get(name)) is not None:
            member.probed_at = now

    def discovered(self, name: str, cards: Iterable[ModelCard], *, version: str) -> bool:
        """Backend ``name`` reports ``cards``; whether that is news.  ``version`` "" where it is not known."""
        member = self._members.get(name)
        if member is None:
            return False
        cards = renewed(member.cards, cards)
        news = [card.id for card in cards] != [card.id for card in member.cards] or version != member.version
        if cards != member.cards:
            self._changed = True
        member.cards, member.version = cards, version
        return news

    def order_adapters(self, orders: Orders) -> None:
        """Operators want these LoRA adapters, and those not."""
        self._orders = orders
        self._changed = True

    def read(self, name: str, reading: EngineReading | None) -> tuple[EngineReading, EngineReading] | None:
        """The engine's numbers, None where they cannot be had; (before, now) when it must have restarted."""
        member = self._members.get(name)
        if member is None:
            return None
        member.reading = reading
        if reading is None:
            member.tps = None
            return None
        before, member.last_reading = member.last_reading, reading
        member.tps = generation_tps(before, reading)
        return (before, reading) if before is not None and has_restarted(before, reading) else None

    def _pool_changes(self, name: str, now: float) -> tuple[PoolChange, ...]:
        members = [member for member in self._members.values() if member.pool == name]
        serving = sum(member.serving for member in members)
        if serving and name in self._down_since:
            return (PoolChange(pool=name, serving=serving, after_s=now - self._down_since.pop(name)),)
        if serving or name in self._down_since or any(it.health.state is BackendState.UNKNOWN for it in members):
            return ()
        self._down_since[name] = now
        reasons = "; ".join(f"{member.config.name} {member.health.reason}" for member in members)
        return (PoolChange(pool=name, serving=0, reason=f"none of {len(members)} serves: {reasons}"),)

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """The configuration in use."""
        return self._runtime

    def snapshot(self) -> Snapshot:
        """What workers are to serve from: the same object until something in it changes."""
        if not self._changed:
            return self._snapshot
        self._changed = False
        pools = [to_pool_view(pool, ordered=self._orders.get(pool.name, {})) for pool in self._runtime.pools]
        named = {pool.name: frozenset((*pool.models, *pool.adapters)) for pool in pools if pool.models}
        unwanted = unwanted_adapters(self._runtime, self._orders)
        shown = {name: without(it.cards, unwanted[it.pool]) for name, it in self._members.items()}
        fresh = msgspec.structs.replace(
            self._snapshot,
            pools=tuple(pools),
            backends=tuple(_view(member, shown[name]) for name, member in self._members.items()),
            cards=with_aliases(
                union(((member.pool, shown[name]) for name, member in self._members.items()), named=named),
                (Alias(alias.name, alias.model) for pool in self._runtime.pools for alias in pool.aliases),
            ),
            policy=to_policy(self._runtime),
        )
        if fresh != self._snapshot:
            self._snapshot = msgspec.structs.replace(fresh, generation=self._snapshot.generation + 1)
        return self._snapshot

    def state(self, name: str) -> BackendState | None:
        """The state of a backend, None for one that is not in the fleet."""
        member = self._members.get(name)
        return None if member is None else member.health.state

    def serving_since(self, name: str) -> float | None:
        """Since when a backend serves, None for one that is not in the fleet; see ``Health``."""
        member = self._members.get(name)
        return None if member is None else member.health.serving_since

    def known(self, name: str) -> tuple[tuple[ModelCard, ...], str]:
        """What a backend reports, wanted or not: its cards and its version; ((), "") where nothing is known."""
        member = self._members.get(name)
        return ((), "") if member is None else (member.cards, member.version)

    def configs(self) -> dict[str, Backend]:
        """Every backend's configuration by name."""
        return {name: member.config for name, member in self._members.items()}

    def probe_period_s(self, name: str) -> float:
        """How long to wait before the next probe of a backend."""
        member = self._members.get(name)
        return self._health_policy.period_s if member is None else probe_period_s(member.health, self._health_policy)

    def remember(self) -> tuple[Remembered, ...]:
        """What to tell the next life of control."""
        return tuple(
            Remembered(name=name, url=member.config.url, cards=member.cards)
            for name, member in self._members.items()
            if member.cards
        )

    def reports(
        self, *, in_flight: Mapping[str, int], requests: Mapping[str, int], now: float, wall: float
    ) -> tuple[BackendReport, ...]:
        """Every backend for operators, in configuration order; counts by backend come from the workers."""
        return tuple(
            BackendReport(
                name=name,
                pool=member.pool,
                url=member.config.url,
                driver=member.config.driver,
                state=member.health.state,
                reason=member.health.reason,
                since_wall=wall - (now - member.health.since),
                models=tuple(card.id for card in member.cards),
                profile="",
                version=member.version,
                in_flight=in_flight.get(name, 0),
                engine_running=member.reading.running if member.reading else None,
                engine_waiting=member.reading.waiting if member.reading else None,
                generation_tokens=member.reading.generation_tokens if member.reading else None,
                generation_tps=member.tps,
                last_probe_wall=None if member.probed_at is None else wall - (now - member.probed_at),
                requests_total=requests.get(name, 0),
            )
            for name, member in self._members.items()
        )

    def pools(self) -> tuple[PoolReport, ...]:
        """Every pool for operators, in configuration order."""
        missing = unreported(self.snapshot())
        return tuple(
            PoolReport(
                name=pool.name,
                models=pool.models or self._models_of(pool.name),
                serving=sum(member.serving for member in self._members.values() if member.pool == pool.name),
                backends=len(pool.backends),
                min_available=pool.min_available,
                unreported=missing.get(pool.name, ()),
            )
            for pool in self._runtime.pools
        )

    def _models_of(self, pool: str) -> tuple[str, ...]:
        of_pool = (backend.models for backend in self.snapshot().backends if backend.pool == pool)
        return tuple(dict.fromkeys(model for models in of_pool for model in models))


def _view(member: _Member, shown: Iterable[ModelCard]) -> BackendView:
    return BackendView(
        name=member.config.name,
        pool=member.pool,
        url=member.config.url,
        state=member.health.state,
        api_key_env=member.config.api_key_env,
        tls_ca=member.config.tls_ca,
        models=tuple(card.id for card in shown),
        serving_since=member.health.serving_since,
    )
