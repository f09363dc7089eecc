"""What the admin API asks, faked: control, the history and the live feed, all in memory.

Each implements its port of `gateway.ports` and is steered by plain attributes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from gateway.control.clients import count_of
from gateway.core.admission.keys import Key
from gateway.core.admission.usage import UsageCount, UsageRow
from gateway.core.link.messages import RequestRecord
from gateway.core.routing.adapters import (
    DONE,
    AdapterOnBackend,
    AdapterOutcome,
    AdapterReport,
    AdapterResult,
    AdapterTold,
)
from gateway.core.routing.backend import BackendState
from gateway.errors import GatewayError, NotFound, StoreUnusable
from gateway.ports import (
    BackendReport,
    ConfigVerdict,
    FeedItem,
    MadeKey,
    PoolReport,
    QuarantineReport,
    RequestFilter,
    StatusReport,
    StoredRequest,
    WorkerReport,
)


def backend_of(name: str, *, state: BackendState = BackendState.SERVING) -> BackendReport:
    """A backend of the pool `kimi`."""
    return BackendReport(
        name=name,
        pool="kimi",
        url="http://127.0.0.1:8001",
        driver="static",
        state=state,
        reason="its health check answers",
        since_wall=1_700_000_000.0,
        models=("kimi-k2.5",),
        profile="stock",
        version="0.20.0",
        in_flight=2,
        engine_running=2.0,
        engine_waiting=None,
        generation_tokens=12345.0,
        generation_tps=80.5,
        last_probe_wall=1_700_000_100.0,
        requests_total=7,
    )


class FakeOperations:
    """Control, as far as operators see it; ``verdict`` is what a reload or check comes to, ``error`` is raised."""

    def __init__(self) -> None:
        self.backend_reports = (backend_of("a"), backend_of("b", state=BackendState.EJECTED))
        self.verdict = ConfigVerdict(applied=True, changes=("pool kimi: backend c is new",))
        self.refused = [
            QuarantineReport(
                fingerprint="00ff00ff00ff00ff",
                backends=("a", "b"),
                first_wall=1_700_000_000.0,
                until_wall=1_700_000_700.0,
            )
        ]
        self.error: Exception | None = None
        self.checked: list[str | None] = []
        self.reloads = 0

    def status(self) -> StatusReport:
        """One pool, one worker."""
        if self.error is not None:
            raise self.error
        return StatusReport(
            summary="1 of 2 backends serves",
            version="0.1.0",
            started_wall=1_700_000_000.0,
            config_path="/etc/pacekeeper/gateway.yaml",
            config_loaded_wall=1_700_000_001.0,
            generation=3,
            in_flight=2,
            pools=(PoolReport(name="kimi", models=("kimi-k2.5",), serving=1, backends=2, min_available=1),),
            workers=(
                WorkerReport(
                    slot=0,
                    pid=4711,
                    started_wall=1_700_000_000.0,
                    generation=3,
                    in_flight=2,
                    connections=5,
                    dropped=0,
                    fresh=True,
                ),
            ),
            outcomes={"ok": 7},
            store_rows=7,
            store_problem="",
        )

    def backends(self) -> tuple[BackendReport, ...]:
        """As set."""
        return self.backend_reports

    def backend(self, name: str) -> BackendReport | None:
        """The one of that name."""
        return next((report for report in self.backend_reports if report.name == name), None)

    def quarantined(self) -> tuple[QuarantineReport, ...]:
        """As set."""
        return tuple(self.refused)

    def release(self, fingerprint: str) -> bool:
        """Taken out."""
        before = len(self.refused)
        self.refused = [it for it in self.refused if it.fingerprint != fingerprint]
        return len(self.refused) < before

    async def reload(self) -> ConfigVerdict:
        """The verdict, counted."""
        self.reloads += 1
        if self.error is not None:
            raise self.error
        return self.verdict

    async def check(self, text: str | None) -> ConfigVerdict:
        """The verdict; remembers the text."""
        self.checked.append(text)
        return self.verdict


class FakeKeys:
    """The clients' keys as a list; ``trouble`` is what changes are refused with."""

    def __init__(self) -> None:
        self.keys = [Key(id="alice", digest=b"a" * 32, name="Alice", created_wall=1_700_000_000.0)]
        self.trouble: GatewayError | None = None

    def all(self) -> tuple[Key, ...]:
        return tuple(self.keys)

    async def create(self, wanted: Key) -> MadeKey:
        if self.trouble is not None:
            raise self.trouble
        made = msgspec.structs.replace(wanted, id=wanted.id or "k-1", digest=b"k" * 32, created_wall=1_700_000_000.0)
        self.keys.append(made)
        return MadeKey(key="pk-shown-once", made=made)

    async def revoke(self, key_id: str) -> Key:
        if self.trouble is not None:
            raise self.trouble
        at = next((at for at, key in enumerate(self.keys) if key.id == key_id), None)
        if at is None:
            raise NotFound("there is no key of that id", param="id")
        self.keys[at] = msgspec.structs.replace(self.keys[at], revoked_wall=1_700_000_100.0)
        return self.keys[at]


class FakeAdapters:
    """One adapter at two backends; ``results`` is what each says to the next orders."""

    def __init__(self) -> None:
        self.results = {"a": AdapterResult.LOADED, "b": AdapterResult.LOADED}
        self.trouble: Exception | None = None
        self.orders: list[tuple[str, str, str]] = []

    def reports(self) -> tuple[AdapterReport, ...]:
        at = AdapterOnBackend(backend="a", state=BackendState.SERVING, loaded=True, path="/adapters/poet")
        return (AdapterReport(pool="kimi", name="poet", path="/adapters/poet", wanted=True, backends=(at,)),)

    async def load(self, pool: str, name: str, *, reload: bool) -> AdapterOutcome:
        return self._order(pool, name, "reload" if reload else "load")

    async def unload(self, pool: str, name: str) -> AdapterOutcome:
        return self._order(pool, name, "unload")

    def _order(self, pool: str, name: str, what: str) -> AdapterOutcome:
        if self.trouble is not None:
            raise self.trouble
        self.orders.append((what, pool, name))
        told = tuple(AdapterTold(backend=it, result=result) for it, result in self.results.items())
        return AdapterOutcome(
            pool=pool,
            name=name,
            wanted=what != "unload",
            complete=all(it.result in DONE for it in told),
            summary=f"{what} of {name}",
            backends=told,
        )


class MemoryHistory:
    """The history as a list; ``trouble`` is what its questions are refused with."""

    def __init__(self, records: Sequence[RequestRecord] = ()) -> None:
        self.stored: list[StoredRequest] = []
        self.trouble: GatewayError | None = None
        self.add(records)

    def add(self, records: Sequence[RequestRecord]) -> None:
        """Kept at once."""
        for record in records:
            self.stored.append(StoredRequest(id=len(self.stored) + 1, record=record))

    async def find(self, wanted: RequestFilter) -> list[StoredRequest]:
        """Newest first, or slowest first."""
        self._refuse()
        rows = [row for row in reversed(self.stored) if _matches(row, wanted)]
        if wanted.slowest:
            rows.sort(key=lambda row: row.record.total_s, reverse=True)
            place = next((at + 1 for at, row in enumerate(rows) if row.id == wanted.before), 0)
            return rows[place : place + wanted.limit]
        return [row for row in rows if not wanted.before or row.id < wanted.before][: wanted.limit]

    async def get(self, request_id: str) -> StoredRequest | None:
        """The newest of that id."""
        self._refuse()
        return next((row for row in reversed(self.stored) if row.record.request_id == request_id), None)

    async def usage(self, since_wall: float) -> list[UsageRow]:
        """Summed anew at each question."""
        self._refuse()
        sums: dict[tuple[str, str], UsageCount] = {}
        for row in self.stored:
            it = row.record
            if it.key_id and it.backend and it.accepted_wall >= since_wall:
                known = sums.get((it.key_id, it.model), UsageCount())
                sums[it.key_id, it.model] = known.plus(count_of(it))
        return [UsageRow(key_id=key_id, model=model, count=count) for (key_id, model), count in sums.items()]

    def rows(self) -> int:
        """All of them."""
        return len(self.stored)

    def problem(self) -> str:
        """The trouble, if any."""
        return str(self.trouble or "")

    def _refuse(self) -> None:
        if self.trouble is not None:
            raise self.trouble


def store_trouble() -> StoreUnusable:
    """What a full disk looks like."""
    return StoreUnusable("var/pacekeeper.db: database or disk is full; free space on that disk")


def _matches(row: StoredRequest, wanted: RequestFilter) -> bool:
    pairs = (
        (wanted.model, row.record.model),
        (wanted.backend, row.record.backend),
        (wanted.outcome, row.record.outcome.value),
    )
    return all(not value or value == held for value, held in pairs)


class MemoryFeed:
    """The live feed as a list; ``keep`` bounds it, ``next_id`` may be moved to play a restart."""

    def __init__(self, *, keep: int = 1000) -> None:
        self.keep = keep
        self.next_id = 1
        self.waiting = 0
        self._items: list[FeedItem] = []
        self._changed = asyncio.Condition()

    async def publish(self, name: str, data: bytes) -> None:
        """Add an event and wake the readers."""
        async with self._changed:
            self._items = [*self._items, FeedItem(id=self.next_id, name=name, data=data)][-self.keep :]
            self.next_id += 1
            self._changed.notify_all()

    def restart(self) -> None:
        """Forget everything and number from 1 again, as a new control process does."""
        self._items.clear()
        self.next_id = 1

    def since(self, last_id: int) -> list[FeedItem]:
        """Newer items; all of them when the number was never given out."""
        start = last_id if last_id < self.next_id else 0
        return [item for item in self._items if item.id > start]

    async def wait(self, last_id: int, *, timeout_s: float) -> list[FeedItem]:
        """Newer items, or [] after the time."""
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.since(last_id))
                return self.since(last_id)
        except TimeoutError:
            return []
        finally:
            self.waiting -= 1
