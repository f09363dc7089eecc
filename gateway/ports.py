"""Protocols between the floors: what a shell needs from what another floor owns.

Implementations are chosen once, in ``gateway.app``.  Values that cross are frozen; nobody may change another's state
through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gateway.core.admission.keys import Key, KeyDefaults, KeyLimits, KeyScope
from gateway.core.admission.usage import UsageRow
from gateway.core.link.messages import RequestRecord
from gateway.core.routing.adapters import AdapterOutcome, AdapterReport
from gateway.core.routing.backend import BackendState
from gateway.core.routing.curve import Curve


class RequestFilter(Struct, frozen=True, kw_only=True):
    """Which history rows are wanted; newest first, at most ``limit``, older than the row id ``before`` (0: newest)."""

    limit: int = 50
    before: int = 0
    model: str = ""
    backend: str = ""
    outcome: str = ""
    slowest: bool = False


class StoredRequest(Struct, frozen=True, kw_only=True):
    """A history row: its id (grows with time) and the record."""

    id: int
    record: RequestRecord


class BackendReport(Struct, frozen=True, kw_only=True):
    """A backend as operators see it.  ``since_wall`` is when it entered ``state``; ``reason`` is one sentence.

    ``curve``: tokens per second of each of so many concurrent streams, as measured at the engine.
    """

    name: str
    pool: str
    url: str
    driver: str
    state: BackendState
    reason: str
    since_wall: float
    models: tuple[str, ...]
    profile: str
    version: str
    in_flight: int
    engine_running: float | None
    engine_waiting: float | None
    generation_tokens: float | None
    generation_tps: float | None
    last_probe_wall: float | None
    requests_total: int
    curve: Curve = ()


class PoolReport(Struct, frozen=True, kw_only=True):
    """A pool as operators see it.

    ``unreported`` are models that it names and none of its backends reports; ``waiting``: requests in its queue, the
    first of them for ``longest_wait_s``; ``refused``: requests that were not let in so far.
    """

    name: str
    models: tuple[str, ...]
    serving: int
    backends: int
    min_available: int
    unreported: tuple[str, ...] = ()
    waiting: int = 0
    longest_wait_s: float | None = None
    refused: int = 0


class QuarantineReport(Struct, frozen=True, kw_only=True):
    """Requests that are refused, since ``backends`` died with one in flight; ``fingerprint`` of their bodies."""

    fingerprint: str
    backends: tuple[str, ...]
    first_wall: float
    until_wall: float


class WorkerReport(Struct, frozen=True, kw_only=True):
    """A worker as control knows it; ``fresh`` is False when its heartbeats have stopped."""

    slot: int
    pid: int
    started_wall: float
    generation: int
    in_flight: int
    connections: int
    dropped: int
    fresh: bool


class StatusReport(Struct, frozen=True, kw_only=True):
    """The whole gateway in one look.  ``summary`` is one sentence for a tired person.

    ``keys``: how many keys clients may use, revoked and expired ones not among them; None where they need none.
    ``refused``: requests that were not let in so far, by the code of the error or the limit of a key.
    ``quarantined``: fingerprints that are refused.  ``stop_left_s``: the gateway is being stopped, and what is open is
    ended in so many seconds; None while it is not.  ``reloading``: the configuration is being read again.
    """

    summary: str
    version: str
    started_wall: float
    config_path: str
    config_loaded_wall: float
    generation: int
    in_flight: int
    pools: tuple[PoolReport, ...]
    workers: tuple[WorkerReport, ...]
    outcomes: dict[str, int]
    store_rows: int
    store_problem: str
    keys: int | None = None
    keys_problem: str = ""
    refused: dict[str, int] = {}
    quarantined: int = 0
    stop_left_s: float | None = None
    reloading: bool = False


class ConfigVerdict(Struct, frozen=True, kw_only=True):
    """What became of a reload or a check: ``faults`` empty means good; ``changes`` are sentences."""

    applied: bool
    faults: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()


class Operations(Protocol):
    """What the admin API may ask of control.  Implemented by ``gateway.control``."""

    def status(self) -> StatusReport:
        """The whole gateway, at once."""
        ...

    def backends(self) -> tuple[BackendReport, ...]:
        """Every backend, in configuration order."""
        ...

    def backend(self, name: str) -> BackendReport | None:
        """One backend, or None."""
        ...

    def quarantined(self) -> tuple[QuarantineReport, ...]:
        """Requests that are refused, the oldest first."""
        ...

    def release(self, fingerprint: str) -> bool:
        """Let requests with the fingerprint in again; False when they were not refused."""
        ...

    async def reload(self) -> ConfigVerdict:
        """Read the configuration file again and apply its runtime part, all or nothing; returns when applied."""
        ...

    async def check(self, text: str | None) -> ConfigVerdict:
        """Validate ``text`` (None: the configured file) without applying anything."""
        ...


class MadeKey(Struct, frozen=True, kw_only=True):
    """A key that was just made: ``key`` is the key itself, which is shown this once."""

    key: str
    made: Key


class KeyReport(Struct, frozen=True, kw_only=True):
    """A key as operators see it.  ``state``: good, expired or revoked; times are null where there is none."""

    id: str
    name: str
    state: str
    scopes: tuple[KeyScope, ...]
    models: tuple[str, ...]
    limits: KeyLimits
    priority_min: int
    priority_max: int
    weight: float
    defaults: KeyDefaults
    cache_salt: bool
    created_wall: float | None
    expires_wall: float | None
    revoked_wall: float | None


class Keys(Protocol):
    """The clients' keys.  Implemented by ``gateway.control``."""

    def all(self) -> tuple[Key, ...]:
        """Every key in use, those that were revoked among them."""
        ...

    async def create(self, wanted: Key) -> MadeKey:
        """Add a key like ``wanted``; digest, id (where it is "") and time are made.  Raises BadRequest, ConfigError."""
        ...

    async def revoke(self, key_id: str) -> Key:
        """End a key.  Raises NotFound, ConfigError."""
        ...


class Adapters(Protocol):
    """LoRA adapters.  Implemented by ``gateway.control``."""

    def reports(self) -> tuple[AdapterReport, ...]:
        """Every configured adapter, in configuration order."""
        ...

    async def load(self, pool: str, name: str, *, reload: bool) -> AdapterOutcome:
        """Have every backend of the pool load it; ``reload``: anew where it is.  Raises NotFound."""
        ...

    async def unload(self, pool: str, name: str) -> AdapterOutcome:
        """Take it from clients and from every backend of the pool.  Raises NotFound."""
        ...


class History(Protocol):
    """The history store.  Implemented by ``gateway.store``."""

    def add(self, records: Sequence[RequestRecord]) -> None:
        """Queue rows for writing; returns at once; a full queue drops and counts."""
        ...

    async def find(self, wanted: RequestFilter) -> list[StoredRequest]:
        """Rows that match.  Raises StoreUnusable."""
        ...

    async def get(self, request_id: str) -> StoredRequest | None:
        """The newest row with that request id.  Raises StoreUnusable."""
        ...

    async def usage(self, since_wall: float) -> list[UsageRow]:
        """What each key has used since then, by model.  Raises StoreUnusable."""
        ...

    def rows(self) -> int:
        """How many rows the store holds, as of its last write."""
        ...

    def problem(self) -> str:
        """One sentence when the store cannot be used at present, else ""."""
        ...


class FeedItem(Struct, frozen=True, kw_only=True):
    """One event of the live feed; ``id`` grows by one; ``data`` is JSON text."""

    id: int
    name: str
    data: bytes


class Feed(Protocol):
    """The live feed.  Implemented by ``gateway.telemetry.bus``."""

    def since(self, last_id: int) -> list[FeedItem]:
        """Kept items newer than ``last_id`` (bounded ring; older ones are gone)."""
        ...

    async def wait(self, last_id: int, *, timeout_s: float) -> list[FeedItem]:
        """Items newer than ``last_id`` as soon as there are any, or [] after ``timeout_s``."""
        ...


class Driver(Protocol):
    """How the engine behind a backend is run.  Implemented by ``gateway.drivers``."""

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        ...

    @property
    def manages(self) -> bool:
        """Whether the gateway starts and stops the engine; False: somebody else does."""
        ...
