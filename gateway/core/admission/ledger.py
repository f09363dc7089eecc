"""All limits that workers share, each with its share book: places in queues, places on backends, limits of keys.

Stepped by control.  A limit comes and goes with the configuration; its book knows every worker from the moment that it
is made.  Says only what has changed since a worker was told last.  Pure: ``now`` is monotonic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping

from msgspec import Struct

from gateway.core.admission.shares import ShareBook, Want


class Claim(Struct, frozen=True, array_like=True):
    """What a worker says of one limit: what it holds, the share in force (None: never told), how many wait for more."""

    holding: int
    share: int | None = None
    waiting: int = 0


class Limit(Struct, frozen=True, kw_only=True):
    """One limit.  ``spent``: it is used up and never given back (tokens of a day), so who is gone has used it still."""

    total: int
    spent: bool = False


_SILENT = Claim(0)


class Ledger:
    """Owner of the share books.  Workers are known by any hashable name."""

    def __init__(self, *, workers: int, inherited: bool) -> None:
        """``inherited``: workers may hold shares that an earlier life of control gave them."""
        self._workers = workers
        self._inherited = inherited
        self._slots: dict[Hashable, int] = {}
        self._claims: dict[Hashable, Mapping[str, Claim]] = {}
        self._books: dict[str, tuple[Limit, ShareBook]] = {}
        self._told: dict[Hashable, dict[str, int]] = {}

    # --- what happens ---------------------------------------------------------------------------------------------

    def set_limits(self, limits: Mapping[str, Limit], *, now: float, used: Callable[[str], int] = lambda _: 0) -> None:
        """The limits are these now.  ``used(name)``: what is used of a new one that is spent, as far as is known."""
        for name in [name for name in self._books if name not in limits]:
            del self._books[name]
        for name, limit in limits.items():
            known = self._books.get(name)
            if known is None:
                self._books[name] = limit, self._book(used(name) if limit.spent else 0, now)
            else:
                self._books[name] = limit, known[1]

    def _book(self, gone: int, now: float) -> ShareBook:
        book = ShareBook(workers=self._workers, inherited=self._inherited, now=now, gone=gone)
        for name, slot in self._slots.items():
            book.join(name, slot, now=now)
        return book

    def join(self, name: Hashable, slot: int, *, now: float) -> None:
        """A worker has connected; it is to be told everything anew."""
        self._slots[name] = slot
        self._told[name] = {}
        self._claims[name] = {}
        for _, book in self._books.values():
            book.join(name, slot, now=now)

    def beat(self, name: Hashable, claims: Mapping[str, Claim]) -> None:
        """A worker says what it holds; of what it does not name it holds nothing and was never told."""
        self._claims[name] = claims
        for resource, (_, book) in self._books.items():
            claim = claims.get(resource, _SILENT)
            book.beat(name, holding=claim.holding, share=claim.share)

    def leave(self, name: Hashable, *, now: float) -> None:
        """A worker's connection has closed."""
        del self._slots[name], self._told[name], self._claims[name]
        for _, book in self._books.values():
            book.leave(name, now=now)

    def new_day(self) -> None:
        """What was spent is forgotten: midnight has passed."""
        for limit, book in self._books.values():
            if limit.spent:
                book.gone = 0

    # --- sharing out ----------------------------------------------------------------------------------------------

    def share_out(
        self,
        *,
        fresh: Collection[Hashable],
        now: float,
        wants: Callable[[str], Mapping[Hashable, Want] | None] = lambda _: None,
    ) -> None:
        """Decide who is to be told another share of any limit; ``wants`` knows where requests wait for one."""
        for resource, (limit, book) in self._books.items():
            total = max(0, limit.total - book.gone) if limit.spent else limit.total
            book.share_out(total, fresh=fresh, now=now, wants=wants(resource) or self._claimed(resource))

    def _claimed(self, resource: str) -> dict[Hashable, Want] | None:
        """Who waits for a limit by its own word; each counts by what it holds and what waits."""
        found: dict[Hashable, Want] = {}
        waiting = 0
        for name, claims in self._claims.items():
            claim = claims.get(resource, _SILENT)
            waiting += claim.waiting
            found[name] = Want(claim.waiting, max(1.0, claim.holding + claim.waiting))
        return found if waiting else None

    def news(self, name: Hashable) -> dict[str, int]:
        """The shares that a worker has not been told yet, which from now on it has."""
        told = self._told.get(name)
        if told is None:
            return {}
        changed: dict[str, int] = {}
        for resource, (_, book) in self._books.items():
            share = book.told(name)
            if share is not None and told.get(resource) != share:
                told[resource] = changed[resource] = share
        return changed

    def held(self, resource: str) -> int:
        """What counts against one limit, as far as workers have said, be it shared out or not."""
        known = self._books.get(resource)
        if known is None:
            return sum(claims[resource].holding for claims in self._claims.values() if resource in claims)
        limit, book = known
        return book.holding + (book.gone if limit.spent else 0)

    def spent(self) -> dict[str, int]:
        """What workers that are no more have spent: limit -> amount, those above nothing."""
        return {name: book.gone for name, (limit, book) in self._books.items() if limit.spent and book.gone > 0}


def places_on(backend: str) -> str:
    """The name of the limit of requests at once on a backend."""
    return f"backend:{backend}"


def queue_of(pool: str) -> str:
    """The name of the limit of requests that wait for a pool."""
    return f"queue:{pool}"


class ShareTable:
    """What one worker may hold of every limit; owned by the worker, told by control."""

    def __init__(self, *, lone: bool) -> None:
        """``lone``: it has no siblings, so every limit is all its own."""
        self.lone = lone
        self._shares: dict[str, int] = {}

    def take(self, changed: Mapping[str, int]) -> None:
        """Control has told other shares."""
        self._shares.update(changed)

    def of(self, resource: str, limit: int) -> int:
        """How much it may hold of what is limited to ``limit`` over all workers; nothing before it was told."""
        return limit if self.lone else min(limit, self._shares.get(resource, 0))

    def claim(self, resource: str, *, holding: int, waiting: int = 0) -> Claim:
        """What it says of one limit."""
        return Claim(holding, self._shares.get(resource), waiting)
