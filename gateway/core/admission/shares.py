"""Shares of one limit over several workers: whatever is told, lost or late, together they never hold more.

Stepped by control, which owns it.  Between being told a share and having it in force a worker may hold as many as the
larger of the two, so both count until the worker has confirmed it, and nobody is raised by what another may still hold.
That is why a worker is told one change at a time.  A worker that left may be alive and only cut off: its share counts
until its slot has another process, or for :data:`AWAIT_S`.  Pure: ``now`` is monotonic.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from math import inf
from typing import Final

AWAIT_S: Final = 12.0
"""How long a worker that is not connected still counts.  One that lives comes back within a second or two; one that
hangs is killed by the supervisor after ten."""


@dataclass(slots=True)
class _Party:
    """One process.

    ``asked``: the share that it was told and has not confirmed.  ``known``: it has ever said what it holds; ``heard``:
    it has on this connection.  ``raised_at``: when its share last grew.
    """

    slot: int
    since: float
    holding: int = 0
    in_force: int = 0
    asked: int | None = None
    known: bool = False
    heard: bool = False
    gone: bool = False
    raised_at: float = -inf

    @property
    def bound(self) -> int:
        """The most that it can hold at this moment."""
        return max(self.holding, self.in_force, self.asked or 0)

    @property
    def turn(self) -> tuple[int, float, int]:
        """Who comes first: the fullest, of these whoever has waited longest, so that a last place goes round."""
        return self.room, self.raised_at, self.slot

    @property
    def room(self) -> int:
        return self.in_force - self.holding


class ShareBook:
    """Who may hold how many.  Owns what each worker was told and has said; workers are known by any hashable name."""

    def __init__(self, *, workers: int, inherited: bool, now: float) -> None:
        """``inherited``: workers may hold shares that an earlier life of control gave them."""
        self._parties: dict[Hashable, _Party] = {}
        self._awaited = dict.fromkeys(range(workers), now + AWAIT_S)
        self._unseen = set(range(workers)) if inherited else set[int]()

    # --- what happens ---------------------------------------------------------------------------------------------

    def join(self, name: Hashable, slot: int, *, now: float) -> None:
        """A worker has connected, for the first time or again; what it holds and may hold, its next beat tells."""
        for other in [key for key, it in self._parties.items() if it.gone and it.slot == slot and key != name]:
            del self._parties[other]  # a slot has one process at a time
        party = self._parties.setdefault(name, _Party(slot, now))
        party.slot, party.since, party.heard, party.gone = slot, now, False, False
        self._awaited.pop(slot, None)
        self._unseen.discard(slot)

    def beat(self, name: Hashable, *, holding: int, share: int | None) -> bool:
        """A worker says what it holds and which share is in force (None: never told); whether it is its first word."""
        party = self._parties[name]
        first = not party.heard
        party.holding, party.in_force, party.known, party.heard = holding, share or 0, True, True
        if first or party.asked == party.in_force:
            party.asked = None  # confirmed; or told over an earlier connection, which says nothing any more
        return first

    def leave(self, name: Hashable, *, now: float) -> None:
        """A worker's connection has closed."""
        party = self._parties[name]
        if any(it.slot == party.slot and not it.gone for key, it in self._parties.items() if key != name):
            del self._parties[name]  # its successor is there already
            return
        party.gone, party.heard, party.since = True, False, now
        self._awaited[party.slot] = now + AWAIT_S

    # --- sharing out ----------------------------------------------------------------------------------------------

    def share_out(self, limit: int, *, fresh: Collection[Hashable], now: float) -> None:
        """Decide who is to be told another share of ``limit``; :meth:`told` has the outcome.

        Each is to have what it holds and an even part of the rest.  Nobody is told anything as long as it has half
        of its part free: shares would change with every request.  Others are lowered only when somebody needs it.
        """
        self._forget(now)
        parts = self._parts(limit, fresh)
        able = [it for it in self._parties.values() if it.heard and it.asked is None]
        wanted = {id(it): it.holding + parts.get(id(it), 0) for it in able}
        needy = [it for it in able if 2 * it.room < parts.get(id(it), 0)]
        needy.sort(key=lambda it: it.turn)
        free = limit - sum(it.bound for it in self._parties.values())
        if free < 0 or free < sum(max(0, wanted[id(it)] - it.bound) for it in needy):
            for party in able:
                if wanted[id(party)] < party.in_force:
                    party.asked = wanted[id(party)]
        if self._may_raise(now):
            for party in needy:
                bound = party.bound
                share = min(wanted[id(party)], bound + max(0, free))
                if party.asked is None and share > party.in_force:
                    party.asked, party.raised_at = share, now
                    free -= party.bound - bound

    def told(self, name: Hashable) -> int | None:
        """The share that a worker has been or is to be told; None before its first word."""
        party = self._parties.get(name)
        if party is None or not party.heard:
            return None
        return party.in_force if party.asked is None else party.asked

    def _parts(self, limit: int, fresh: Collection[Hashable]) -> dict[int, int]:
        """What each fresh worker may have beyond what it holds; those that are about to come have theirs left free."""
        takers = [it for key, it in self._parties.items() if key in fresh and it.heard]
        taken = sum(it.holding if it.heard else it.bound for it in self._parties.values())
        slots = {it.slot for it in self._parties.values()}
        coming = sum(slot not in slots for slot in self._awaited)
        if not takers:
            return {}
        each, left = divmod(max(0, limit - taken), len(takers) + coming)
        takers.sort(key=lambda it: it.turn)
        return {id(it): each + (at < left) for at, it in enumerate(takers)}

    def _may_raise(self, now: float) -> bool:
        """Not while a worker is connected or expected of which nobody knows what share it has."""
        unknown = any(not it.known and now - it.since < AWAIT_S for it in self._parties.values())
        return not unknown and not self._unseen

    def _forget(self, now: float) -> None:
        for name in [key for key, it in self._parties.items() if it.gone and now - it.since >= AWAIT_S]:
            del self._parties[name]
        for slot in [slot for slot, until in self._awaited.items() if now >= until]:
            del self._awaited[slot]
            self._unseen.discard(slot)
