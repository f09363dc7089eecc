"""What control knows of clients: their keys, what each has used, and which limits of theirs workers share.

Part of the state that the control loop steps.  Keys come from their file (:mod:`gateway.control.keysfile`) and stay
when that is damaged.  Must not do I/O or read a clock: the time of day is set before each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from gateway.control import inbox
from gateway.control.inbox import Action
from gateway.control.roster import Roster
from gateway.core.admission.keys import Key
from gateway.core.admission.ledger import Limit, places_on, queue_of
from gateway.core.admission.quota import Resource, day_of, limits_of
from gateway.core.admission.usage import KeyUsage, UsageBook, UsageCount, UsageRow
from gateway.core.link.messages import RequestRecord
from gateway.settings import Pool
from gateway.telemetry.events import EventName


class Clients:
    """Owner of the keys in use and of the counts.  ``keys`` None: clients need none; ``problem``: of the file."""

    def __init__(self, *, keys: tuple[Key, ...] | None = None, usage: UsageBook | None = None) -> None:
        self.keys = keys
        self.problem = ""
        self.now_wall = 0.0
        self._day = 0
        self._usage = usage or UsageBook()

    def replace(self, keys: tuple[Key, ...]) -> Iterator[Action]:
        """The keys are these now."""
        mended, self.problem = bool(self.problem), ""
        if keys != self.keys:
            changes = key_changes(self.keys or (), keys)
            self.keys = keys
            yield inbox.PublishKeys(keys)
            yield inbox.Tell(EventName.KEYS_LOADED, {"keys": len(keys), "changes": changes})
        elif mended:
            yield inbox.Tell(EventName.KEYS_LOADED, {"keys": len(keys), "changes": ()})

    def refuse(self, path: str, faults: tuple[str, ...]) -> Iterator[Action]:
        """Their file cannot be used: those in use stay.  Told once for each trouble."""
        problem = "; ".join(faults)
        if problem != self.problem:
            self.problem = problem
            kept = len(self.keys or ())
            yield inbox.Tell(EventName.KEYS_REFUSED, {"path": path, "faults": faults, "kept": kept})

    def count(self, records: Iterable[RequestRecord], now: float) -> None:
        """Requests have ended."""
        for record in records:
            if record.key_id and record.backend:
                self._usage.add(record.key_id, record.model, count_of(record), now=now, now_wall=self.now_wall)

    def begin(self, rows: Iterable[UsageRow], now_wall: float) -> None:
        """What the history knows of today, before the first request is counted."""
        self.now_wall = now_wall
        self._usage.begin(rows, now_wall=now_wall)

    def turn(self) -> bool:
        """Whether midnight, UTC, has passed since the last look."""
        before, self._day = self._day, day_of(self.now_wall)
        return before not in {0, self._day}

    def usage_of(self, key_id: str, now: float, *, held: Callable[[str], int]) -> KeyUsage:
        """What a key has used; ``held(limit)`` knows what counts against one."""
        usage = self._usage.of(key_id, now=now, now_wall=self.now_wall)
        return replace(usage, held={resource.value: held(resource.of(key_id)) for resource in Resource})

    def tokens_today(self, resource: str) -> int:
        """Tokens of today of the key that a limit of the day is about."""
        key_id = resource.removeprefix(Resource.DAY.of(""))
        return self._usage.of(key_id, now=0.0, now_wall=self.now_wall).today.tokens


def count_of(record: RequestRecord) -> UsageCount:
    """What one request counts for, as far as is known."""
    summary = record.summary
    if summary is None:
        return UsageCount(requests=1)
    return UsageCount(
        requests=1,
        prompt_tokens=summary.prompt_tokens or 0,
        completion_tokens=summary.completion_tokens or 0,
        reasoning_tokens=summary.reasoning_tokens or 0,
    )


def key_changes(old: Sequence[Key], new: Sequence[Key]) -> tuple[str, ...]:
    """What is other than before, in sentences; never a key and never a digest."""
    before, after = {key.id: key for key in old}, {key.id: key for key in new}
    return (
        *(f"key {key_id}: removed" for key_id in before if key_id not in after),
        *(f"key {key_id}: added" for key_id in after if key_id not in before),
        *(
            f"key {key_id}: {'revoked' if key.revoked_wall and not before[key_id].revoked_wall else 'changed'}"
            for key_id, key in after.items()
            if key_id in before and before[key_id] != key
        ),
    )


def share_limits(clients: Clients, pools: Sequence[Pool], roster: Roster, *, now: float) -> None:
    """Have ``roster`` share out the limits of the configuration and of the keys as they are now."""
    keys = clients.keys or ()
    limits = shared_limits(pools, keys, lone=roster.lone)
    roster.ledger.set_limits(limits, now=now, used=clients.tokens_today)
    roster.places = places_of(pools)
    roster.weights = {key.id: key.weight for key in keys}


def shared_limits(pools: Iterable[Pool], keys: Iterable[Key], *, lone: bool) -> dict[str, Limit]:
    """The limits that workers share; ``lone``: there is one worker, which keeps all but what survives it by itself."""
    found: dict[str, Limit] = {}
    for pool in pools if not lone else ():
        if pool.concurrency or pool.hold_s:
            found[queue_of(pool.name)] = Limit(total=pool.queue)
        if pool.concurrency:
            found.update((places_on(it.name), Limit(total=pool.concurrency)) for it in pool.backends)
    for key in keys:
        for resource, limit in limits_of(key.limits).items():
            if resource is Resource.DAY or not lone:
                found[resource.of(key.id)] = Limit(total=limit, spent=resource is Resource.DAY)
    return found


def places_of(pools: Iterable[Pool]) -> dict[str, tuple[str, int]]:
    """The limit of places on each backend -> its pool, and how many backends the pool has."""
    return {
        places_on(backend.name): (pool.name, len(pool.backends))
        for pool in pools
        if pool.concurrency
        for backend in pool.backends
    }
