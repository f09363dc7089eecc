"""LoRA adapters: which are wanted where, what an engine's answers mean, and when a backend is to be tried again.

An adapter is configured (its name and its path on the backends' host), wanted or not (an operator's order, else its
own setting), and loaded at a backend or not (what the backend reports).  Clients see those that are wanted.  Owned by
control; workers know the wanted names.  Pure: ``now`` is monotonic.  Must not call anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import ModelCard

FIRST_RETRY_S: Final = 2.0
MAX_RETRY_S: Final = 300.0
"""Between two tries at a backend that does not load an adapter: doubled from the first to this."""

MAX_WORDS: Final = 300
"""Of an engine's own message."""

NO_ROUTE: Final = (
    "it has no route for this: start the engine with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment, and with "
    "--enable-lora"
)
KEY_REFUSED: Final = "it refuses our key: is api_key_env right?"
NOT_REPORTED: Final = "it answered 200 and still does not report the adapter at /v1/models"
STILL_REPORTED: Final = "it answered 200 and still reports the adapter at /v1/models"
OWN_MODEL: Final = "that is the name of a model of its own: give the adapter another one in pools[].lora"

Orders = Mapping[str, Mapping[str, bool]]
"""What operators said: pool -> adapter -> whether it is wanted.  One that is not here is as its setting says."""


class Adapter(Struct, frozen=True, kw_only=True):
    """An adapter of a pool: ``path`` is one on the backends' host, ``load`` whether it is wanted unless ordered."""

    name: str
    path: str
    load: bool = False

    def wanted(self, orders: Mapping[str, bool]) -> bool:
        """Whether the pool's backends are to have it loaded, by the ``orders`` of its pool."""
        return orders.get(self.name, self.load)


class AdapterResult(StrEnum):
    """What came of an order at one backend."""

    LOADED = "loaded"
    RELOADED = "reloaded"
    ALREADY_LOADED = "already_loaded"
    UNLOADED = "unloaded"
    NOT_LOADED = "not_loaded"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    SUPERSEDED = "superseded"
    NOT_ASKED = "not_asked"


FAILED: Final = frozenset({AdapterResult.REFUSED, AdapterResult.UNREACHABLE})
"""Results after which the backend is asked again."""

DONE: Final = frozenset(AdapterResult) - FAILED - {AdapterResult.SUPERSEDED, AdapterResult.NOT_ASKED}
"""Results after which the backend is as ordered."""


class AdapterTold(Struct, frozen=True, kw_only=True):
    """What one backend said to an order; ``detail`` is a phrase, "" where the result says it all."""

    backend: str
    result: AdapterResult
    detail: str = ""


class AdapterOutcome(Struct, frozen=True, kw_only=True):
    """What an order came to.  ``complete``: every backend of the pool is as ordered; ``summary`` is a sentence."""

    pool: str
    name: str
    wanted: bool
    complete: bool
    summary: str
    backends: tuple[AdapterTold, ...]


class AdapterOnBackend(Struct, frozen=True, kw_only=True):
    """An adapter at one backend: whether that reports it, from which path, and how the last try went, if any."""

    backend: str
    state: BackendState
    loaded: bool
    path: str
    result: AdapterResult | None = None
    detail: str = ""
    tried_wall: float | None = None
    retry_in_s: float | None = None


class AdapterReport(Struct, frozen=True, kw_only=True):
    """An adapter as operators see it; ``path`` is the configured one."""

    pool: str
    name: str
    path: str
    wanted: bool
    backends: tuple[AdapterOnBackend, ...]


class _Error(Struct):
    message: str


class _Refusal(Struct):
    error: _Error


class _Card(Struct):
    root: str | None = None
    parent: str | UnsetType | None = UNSET


def verdict(status: int, body: bytes, *, path: str = "") -> str:
    """Why the engine did not do what it was asked, in a phrase; "" where it did.  ``path``: what it was to load.

    vLLM 0.32 answers 200 with a sentence, 400, 404 or 500 with an error object, and 404 with ``{"detail": ...}``
    where the route is not there.
    """
    if status == 200:
        return ""
    if status in {401, 403}:
        return KEY_REFUSED
    try:
        words = msgspec.json.decode(body, type=_Refusal).error.message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return NO_ROUTE if status in {404, 405} else f"it answered {status}"
    words = "".join(char if char.isprintable() else " " for char in words[:MAX_WORDS]).rstrip(" .")
    hint = f" (looked for at {path} on its own host)" if status == 404 and path else ""
    return f"{words}{hint}" or f"it answered {status}"


def root_of(card: ModelCard) -> str:
    """Where the engine says that a model or adapter came from, "" where it does not."""
    return _read(card).root or ""


def is_own_model(card: ModelCard) -> bool:
    """Whether the engine says that this is a model of its own: one of an adapter names the model beneath."""
    return _read(card).parent is None


def _read(card: ModelCard) -> _Card:
    try:
        return msgspec.json.decode(card.raw, type=_Card)
    except msgspec.MsgspecError:
        return _Card()


def find_card(cards: Iterable[ModelCard], name: str) -> ModelCard | None:
    """The card of that id."""
    return next((card for card in cards if card.id == name), None)


@dataclass(slots=True)
class _Try:
    """The last try of an adapter at a backend that served since ``epoch``; ``replaced``: it had another one loaded."""

    told: AdapterTold
    path: str
    wall: float
    epoch: float
    replaced: bool = False
    failures: int = 0
    not_before: float = 0.0

    @property
    def done(self) -> bool:
        return self.told.result in DONE


@dataclass(slots=True)
class AdapterBook:
    """What was ordered, and how the last try at each backend went.  Owned by control's adapter desk."""

    orders: dict[str, dict[str, bool]] = field(default_factory=dict)
    _tries: dict[tuple[str, str], _Try] = field(default_factory=dict)

    def order(self, pool: str, name: str, *, wanted: bool) -> None:
        """An operator wants it so from now on; what failed before is tried again at once."""
        self.orders.setdefault(pool, {})[name] = wanted
        for (_, adapter), last in self._tries.items():
            if adapter == name:
                last.not_before, last.failures, last.replaced = 0.0, 0, False

    def keep(self, pools: Mapping[str, Iterable[str]], backends: Iterable[str]) -> bool:
        """Forget what is configured no longer: ``pools`` are the adapters of each; whether an order was among it."""
        known = {pool: set(names) for pool, names in pools.items()}
        kept = {
            pool: {name: wanted for name, wanted in orders.items() if name in known[pool]}
            for pool, orders in self.orders.items()
            if pool in known
        }
        kept = {pool: orders for pool, orders in kept.items() if orders}
        names = set().union(*known.values())
        places = set(backends)
        self._tries = {at: last for at, last in self._tries.items() if at[0] in places and at[1] in names}
        changed, self.orders = kept != self.orders, kept
        return changed

    def note(
        self,
        name: str,
        told: AdapterTold,
        *,
        path: str,
        epoch: float,
        now: float,
        wall: float,
        replaced: bool = False,
    ) -> bool:
        """A try has ended; whether what was told is news.

        ``path``: what was to be loaded, "" where nothing was; ``epoch``: since when the backend serves.
        """
        before = self._tries.get((told.backend, name))
        failures = 1 + (before.failures if before else 0) if told.result in FAILED else 0
        delay_s = min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures - 1, 32)) if failures else 0.0
        replaced = replaced or (before is not None and before.replaced and before.path == path)
        last = _Try(told, path, wall, epoch, replaced, failures=failures, not_before=now + delay_s)
        self._tries[told.backend, name] = last
        return last.done or before is None or before.told != told

    def may_replace(self, adapter: Adapter, backend: str) -> bool:
        """Whether ``backend`` may have another of that name replaced: not while one that tried lost what it had."""
        return not any(
            name == adapter.name and place != backend and last.path == adapter.path and last.replaced and not last.done
            for (place, name), last in self._tries.items()
        )

    def wants(
        self, pool: str, adapter: Adapter, *, backend: str, cards: Iterable[ModelCard], epoch: float, now: float
    ) -> bool | None:
        """What ``backend`` is to be asked for now: True to load, False to unload, None nothing.

        One that nobody ever ordered away is left alone where it is loaded.  Another path than the configured one is
        loaded over once, since an engine may spell paths in its own way.
        """
        last = self._tries.get((backend, adapter.name))
        if last is not None and last.epoch == epoch and now < last.not_before:
            return None
        card = find_card(cards, adapter.name)
        if card is not None and is_own_model(card):
            return True if adapter.wanted(self.orders.get(pool, {})) else None  # to be refused, which is told
        orders = self.orders.get(pool, {})
        if adapter.wanted(orders):
            settled = last is not None and last.done and last.epoch == epoch and last.path == adapter.path
            return None if card is not None and (settled or root_of(card) == adapter.path) else True
        return False if card is not None and orders.get(adapter.name) is False else None

    def on_backend(
        self, name: str, backend: str, state: BackendState, *, cards: Iterable[ModelCard], now: float
    ) -> AdapterOnBackend:
        """What is known of an adapter at a backend."""
        card = find_card(cards, name)
        if card is not None and is_own_model(card):
            card = None
        last = self._tries.get((backend, name))
        return AdapterOnBackend(
            backend=backend,
            state=state,
            loaded=card is not None,
            path="" if card is None else root_of(card),
            result=None if last is None else last.told.result,
            detail="" if last is None else last.told.detail,
            tried_wall=None if last is None else last.wall,
            retry_in_s=round(max(0.0, last.not_before - now), 1) if last is not None and last.failures else None,
        )


def summary_of(name: str, told: Iterable[AdapterTold], *, wanted: bool) -> str:
    """One sentence: at how many backends the order was carried out, and why not at the others."""
    told = tuple(told)
    done = sum(it.result in DONE for it in told)
    verb = "loaded" if wanted else "unloaded"
    troubles = "; ".join(f"{it.backend} {it.result}: {it.detail}" for it in told if it.result not in DONE)
    if not troubles:
        return f"{name} is {verb} at all {done} backend{'s' * (done != 1)} of the pool"
    later = "; the others get it as soon as they can" if wanted else "; the others lose it as soon as they can"
    return f"{name} is {verb} at {done} of {len(told)} backends: {troubles}{later}"
