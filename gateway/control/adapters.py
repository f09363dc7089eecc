"""LoRA adapters for operators: orders are kept, told to every backend of the pool, and carried out again when needed.

Owner of the orders and of how each try went.  An order holds until the next one: a backend that restarts or joins
later gets the wanted adapters once it serves, and one that could not be reached is asked again.  What is loaded is
what backends report; what clients may use goes through the control loop to the fleet.  A path comes from the
configuration alone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from gateway import aio
from gateway.control import inbox
from gateway.control.adapter_calls import AdapterCall, carry_out
from gateway.control.loop import ControlLoop, Tools
from gateway.core.routing.adapters import (
    DONE,
    FAILED,
    Adapter,
    AdapterBook,
    AdapterOutcome,
    AdapterReport,
    AdapterResult,
    AdapterTold,
    Orders,
    find_card,
    is_own_model,
    root_of,
    summary_of,
)
from gateway.core.routing.backend import ALWAYS, BackendState
from gateway.core.routing.snapshot import ModelCard
from gateway.errors import NotFound
from gateway.settings import Backend, Pool, Runtime, to_adapters
from gateway.telemetry.events import EventName

LOOK_S: Final = 1.0
"""How often it is looked whether a backend lacks something."""

AT_ONCE: Final = 16
"""Backends that are asked at the same time; one backend does one thing after the other."""

_TOLD_AS: Final = {
    AdapterResult.LOADED: EventName.ADAPTER_LOADED,
    AdapterResult.RELOADED: EventName.ADAPTER_LOADED,
    AdapterResult.UNLOADED: EventName.ADAPTER_UNLOADED,
    AdapterResult.REFUSED: EventName.ADAPTER_FAILED,
    AdapterResult.UNREACHABLE: EventName.ADAPTER_FAILED,
}


class AdapterDesk:
    """Implements :class:`gateway.ports.Adapters`; see the module."""

    def __init__(
        self,
        loop: ControlLoop,
        tools: Tools,
        *,
        orders: Orders,
    ) -> None:
        """``orders``: of an earlier life; the fleet has them already."""
        self._loop = loop
        self._fleet = loop.state.fleet
        self._book = AdapterBook(orders={pool: dict(of_pool) for pool, of_pool in orders.items()})
        self._keeper = tools.keeper
        self._events = tools.events
        self._environ = tools.environ
        self._clock = tools.clock
        self._wall = tools.wall
        self._followed: Runtime | None = None
        self._places = asyncio.Semaphore(AT_ONCE)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._mending: dict[tuple[str, str], AdapterCall] = {}
        self._nursery = aio.Nursery(loop.failed)

    # --- what operators ask ---------------------------------------------------------------------------------------

    def reports(self) -> tuple[AdapterReport, ...]:
        """Every configured adapter, in the order of the configuration."""
        return tuple(
            AdapterReport(
                pool=pool.name,
                name=adapter.name,
                path=adapter.path,
                wanted=adapter.wanted(self._book.orders.get(pool.name, {})),
                backends=tuple(
                    self._book.on_backend(
                        adapter.name,
                        it.name,
                        self._fleet.state(it.name) or BackendState.UNKNOWN,
                        cards=self._fleet.known(it.name)[0],
                        now=self._clock(),
                    )
                    for it in pool.backends
                ),
            )
            for pool in self._fleet.runtime.pools
            for adapter in to_adapters(pool)
        )

    async def load(self, pool: str, name: str, *, reload: bool) -> AdapterOutcome:
        """Have every backend of the pool load it, now and whenever one lacks it.  Raises NotFound."""
        return await self._order(pool, name, load=True, reload=reload)

    async def unload(self, pool: str, name: str) -> AdapterOutcome:
        """Take it from clients, then have every backend of the pool let go of it.  Raises NotFound."""
        return await self._order(pool, name, load=False, reload=False)

    async def _order(self, pool: str, name: str, *, load: bool, reload: bool) -> AdapterOutcome:
        found, adapter = self._find(pool, name)
        self._book.order(pool, name, wanted=load)
        self._keep()
        await self._keeper.written()  # so that a control that dies now comes back with this order
        calls = [
            AdapterCall(
                pool=pool,
                adapter=adapter,
                backend=backend,
                load=load,
                reload=reload,
                replaces=load and self._is_other(backend.name, adapter, reload=reload),
            )
            for backend in found.backends
        ]
        async with asyncio.TaskGroup() as tasks:
            replaced = tasks.create_task(self._replace([it for it in calls if it.replaces]), name="adapters replaced")
            asked = [
                tasks.create_task(self._call(call), name=f"adapter {call.backend.name}")
                for call in calls
                if not call.replaces
            ]
        by_name = {it.backend: it for it in (*replaced.result(), *(task.result() for task in asked))}
        told = tuple(by_name[call.backend.name] for call in calls)
        return AdapterOutcome(
            pool=pool,
            name=name,
            wanted=load,
            complete=all(it.result in DONE for it in told),
            summary=summary_of(name, told, wanted=load),
            backends=told,
        )

    async def _replace(self, calls: list[AdapterCall]) -> list[AdapterTold]:
        """One backend after the other, so that the rest serve meanwhile; a failure leaves them what they have."""
        told: list[AdapterTold] = []
        for call in calls:
            failed = next((it for it in told if it.result in FAILED), None)
            if failed is None:
                told.append(await self._call(call))
            else:
                detail = f"it keeps what it has, since {failed.backend} did not take it"
                told.append(AdapterTold(backend=call.backend.name, result=AdapterResult.NOT_ASKED, detail=detail))
        return told

    def _is_other(self, backend: str, adapter: Adapter, *, reload: bool = False) -> bool:
        """Whether a backend has one of that name that has to go first."""
        card = find_card(self._fleet.known(backend)[0], adapter.name)
        return card is not None and not is_own_model(card) and (reload or root_of(card) != adapter.path)

    def _find(self, pool: str, name: str) -> tuple[Pool, Adapter]:
        found = next((it for it in self._fleet.runtime.pools if it.name == pool), None)
        if found is None:
            raise NotFound(f"there is no pool {pool[:64]}", param="pool")
        adapter = next((it for it in to_adapters(found) if it.name == name), None)
        if adapter is None:
            message = f"pool {pool} has no LoRA adapter of that name: pools[].lora in the configuration names them"
            raise NotFound(message, param="name")
        return found, adapter

    def _keep(self) -> None:
        """The orders are others now."""
        orders = {pool: dict(of_pool) for pool, of_pool in self._book.orders.items()}
        self._keeper.keep_adapters(orders)
        self._loop.post(inbox.AdaptersOrdered(orders))

    # --- what happens by itself -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look after what backends lack, until cancelled."""
        try:
            await aio.every(LOOK_S, self._look)
        finally:
            await self._nursery.close()

    async def _look(self) -> None:
        self._follow(self._fleet.runtime)
        for call in self._lacking():
            at = call.backend.name, call.adapter.name
            self._mending[at] = call
            self._nursery.spawn(self._mend(call), name=f"adapter {call.backend.name}")

    def _follow(self, runtime: Runtime) -> None:
        if runtime is self._followed:
            return
        self._followed = runtime
        names = {backend.name for pool in runtime.pools for backend in pool.backends}
        for name in [name for name, turn in self._turns.items() if name not in names and not turn.locked()]:
            del self._turns[name]
        if self._book.keep({pool.name: [it.name for it in pool.lora] for pool in runtime.pools}, names):
            self._keep()

    def _lacking(self) -> Iterator[AdapterCall]:
        now = self._clock()
        for pool in self._fleet.runtime.pools:
            for backend in pool.backends:
                cards, _ = self._fleet.known(backend.name)
                if self._fleet.state(backend.name) is not BackendState.SERVING or not cards:
                    continue
                epoch = self._epoch(backend.name)
                for adapter in to_adapters(pool):
                    if (backend.name, adapter.name) in self._mending or self._turns[backend.name].locked():
                        continue
                    load = self._book.wants(pool.name, adapter, backend=backend.name, cards=cards, epoch=epoch, now=now)
                    if load is None:
                        continue
                    replaces = load and self._is_other(backend.name, adapter)
                    if not replaces or self._may_replace(adapter, backend.name):
                        yield AdapterCall(
                            pool=pool.name, adapter=adapter, backend=backend, load=load, replaces=replaces
                        )

    def _may_replace(self, adapter: Adapter, backend: str) -> bool:
        """One backend after the other, and no further after one that lost what it had."""
        busy = any(call.replaces and call.adapter.name == adapter.name for call in self._mending.values())
        return not busy and self._book.may_replace(adapter, backend)

    async def _mend(self, call: AdapterCall) -> None:
        try:
            await self._call(call)
        finally:
            del self._mending[call.backend.name, call.adapter.name]

    def _epoch(self, backend: str) -> float:
        since = self._fleet.serving_since(backend)
        return ALWAYS if since is None else since

    # --- one backend ----------------------------------------------------------------------------------------------

    async def _call(self, call: AdapterCall) -> AdapterTold:
        name = call.backend.name
        async with self._turns[name], self._places:
            if not self._is_current(call):
                return AdapterTold(
                    backend=name, result=AdapterResult.SUPERSEDED, detail="another order or configuration came"
                )
            told, cards = await carry_out(
                call, environ=self._environ, withdraw=lambda left: self._reports(call.backend, left)
            )
        if cards is not None:
            self._reports(call.backend, cards)
        news = self._book.note(
            call.adapter.name,
            told,
            path=call.adapter.path if call.load else "",
            epoch=self._epoch(name),
            now=self._clock(),
            wall=self._wall(),
            replaced=call.replaces,
        )
        if news and told.result in _TOLD_AS:
            self._tell(call, told)
        return told

    def _reports(self, backend: Backend, cards: tuple[ModelCard, ...]) -> None:
        """A backend reports these, or will in a moment."""
        if self._fleet.configs().get(backend.name) == backend:
            _, version = self._fleet.known(backend.name)
            self._loop.post(inbox.ModelsRead(backend=backend.name, cards=cards, version=version))

    def _is_current(self, call: AdapterCall) -> bool:
        pool = next((it for it in self._fleet.runtime.pools if it.name == call.pool), None)
        if pool is None or call.backend not in pool.backends or call.adapter not in to_adapters(pool):
            return False
        return call.adapter.wanted(self._book.orders.get(call.pool, {})) is call.load

    def _tell(self, call: AdapterCall, told: AdapterTold) -> None:
        fields = {"backend": told.backend, "pool": call.pool, "adapter": call.adapter.name}
        if told.result in DONE:
            self._events.emit(_TOLD_AS[told.result], **fields, result=told.result.value)
        else:
            self._events.emit(_TOLD_AS[told.result], **fields, wanted=call.load, reason=told.detail)
