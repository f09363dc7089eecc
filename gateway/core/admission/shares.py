"""Shares of one limit over several workers: whatever is told, lost or late, together they never hold more.

The limit is of whatever workers can hold: requests in flight, places in a queue or on a backend, what a key has used
within its minute or day.  Stepped by control, which owns it.  Between being told a share and having it in force a
worker may hold as many as the larger of the two, so both count until the worker has confirmed it, and nobody is raised
by what another may still hold.  That is why a worker is told one change at a time.  A worker that left may be alive
and only cut off: its share counts until its slot has another process, or for :data:`AWAIT_S`.  Pure: ``now`` is
monotonic.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

AWAIT_S: Final = 12.0
"""How long a worker that is not connected still counts.  One that lives comes back within a second or two; one that
hangs is killed by the supervisor after ten."""


ROTATE_S: Final = 1.0
"""How long a worker keeps, while others wait, the last place that cannot be divided."""


class Want(NamedTuple):
    """What a worker asks for beyond what it holds: how many requests wait for it there, and its weight among others."""

    waiting: int
    weight: float


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
    """Who may hold how many.  Owns what each worker was told and has said; workers are known by any hashable name.

    ``gone``: what workers held that have been given up for lost; of what is used and never given back it stays used.
    """

    def __init__(self, *, workers: int, inherited: bool, now: float, gone: int = 0) -> None:
        """``inherited``: workers may hold shares that an earlier life of control gave them.

        ``gone`` counts all that is known to be used, what living workers will say included.
        """
        self.gone = gone
        self._parties: dict[Hashable, _Party] = {}
        self._awaited = dict.fromkeys(range(workers), now + AWAIT_S)
        self._unseen = set(range(workers)) if inherited else set[int]()

    # --- what happens ---------------------------------------------------------------------------------------------

    def join(self, name: Hashable, slot: int, *, now: float) -> None:
        """A worker has connected, for the first time or again; what it holds and may hold, its next beat tells."""
        for other in [key for key, it in self._parties.items() if it.gone and it.slot == slot and key != name]:
            self._bury(other)  # a slot has one process at a time
        party = self._parties.setdefault(name, _Party(slot, now))
        party.slot, party.since, party.heard, party.gone = slot, now, False, False
        self._awaited.pop(slot, None)
        self._unseen.discard(slot)

    def beat(self, name: Hashable, *, holding: int, share: int | None) -> bool:
        """A worker says what it holds and which share is in force (None: never told); whether it is its first word."""
        party = self._parties[name]
        first = not party.heard
        if not party.known:
            self.gone = max(0, self.gone - holding)
        party.holding, party.in_force, party.known, party.heard = holding, share or 0, True, True
        if first or party.asked == party.in_force:
            party.asked = None  # confirmed; or told over an earlier connection, which says nothing any more
        return first

    def leave(self, name: Hashable, *, now: float) -> None:
        """A worker's connection has closed."""
        party = self._parties[name]
        if any(it.slot == party.slot and not it.gone for key, it in self._parties.items() if key != name):
            self._bury(name)  # its successor is there already
            return
        party.gone, party.heard, party.since = True, False, now
        self._awaited[party.slot] = now + AWAIT_S

    @property
    def holding(self) -> int:
        """What all that may live hold, as they said last."""
        return sum(party.holding for party in self._parties.values())

    # --- sharing out ----------------------------------------------------------------------------------------------

    def share_out(
        self, limit: int, *, fresh: Collection[Hashable], now: float, wants: Mapping[Hashable, Want] | None = None
    ) -> None:
        """Decide who is to be told another share of ``limit``; :meth:`told` has the outcome.

        Each is to have what it holds and an even part of the rest.  Nobody is told anything as long as it has half
        of its part free: shares would change with every request.  Others are lowered only when somebody needs it.
        While requests wait for it, ``wants`` says where: then the whole is divided by weight, nobody gets more than it
        can use, and who holds more than its part takes nothing new until it does not.
        """
        self._forget(now)
        able = [it for it in self._parties.values() if it.heard and it.asked is None]
        if wants and any(want.waiting for want in wants.values()):
            parts = self._divided(limit, fresh, now, wants=wants)
            wanted = {id(it): parts.get(id(it), it.holding) for it in able}
            needy = [it for it in able if it.in_force < wanted[id(it)]]
        else:
            parts = self._parts(limit, fresh)
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

    def _divided(
        self, limit: int, fresh: Collection[Hashable], now: float, *, wants: Mapping[Hashable, Want]
    ) -> dict[int, int]:
        """The share of each fresh worker while requests wait: by weight, but no more than it can use."""
        takers = [(it, wants.get(key, _NOTHING)) for key, it in self._parties.items() if key in fresh and it.heard]
        others = sum(it.bound for key, it in self._parties.items() if not (key in fresh and it.heard))
        left = max(0, limit - others)
        everyone = [it for it, _ in takers]
        shares: dict[int, int] = {}
        while takers:
            level = left / sum(want.weight for _, want in takers)
            content = [(it, want) for it, want in takers if it.holding + want.waiting <= want.weight * level]
            if not content:
                break
            for it, want in content:
                shares[id(it)] = it.holding + want.waiting
                left -= shares[id(it)]
            takers = [(it, want) for it, want in takers if id(it) not in shares]
        if not takers:  # there is more than all of them can use: the rest is for whoever comes
            takers = [(it, Want(0, 1.0)) for it in everyone]
        total = sum(want.weight for _, want in takers)
        parts = {id(it): int(left * want.weight / total) for it, want in takers}
        left -= sum(parts.values())
        for it, _ in takers:
            shares[id(it)] = shares.get(id(it), 0) + parts[id(it)]
        for it, _ in sorted(takers, key=lambda pair: _next_in_turn(pair[0], parts[id(pair[0])], now))[:left]:
            if it.in_force > parts[id(it)] and now - it.raised_at >= ROTATE_S:
                it.raised_at = now  # it has had its term, and keeps the place for another
            shares[id(it)] += 1
        return shares

    def _bury(self, name: Hashable) -> None:
        self.gone += self._parties.pop(name).holding

    def _may_raise(self, now: float) -> bool:
        """Not while a worker is connected or expected of which nobody knows what share it has."""
        unknown = any(not it.known and now - it.since < AWAIT_S for it in self._parties.values())
        return not unknown and not self._unseen

    def _forget(self, now: float) -> None:
        for name in [key for key, it in self._parties.items() if it.gone and now - it.since >= AWAIT_S]:
            self._bury(name)
        for slot in [slot for slot, until in self._awaited.items() if now >= until]:
            del self._awaited[slot]
            self._unseen.discard(slot)


_NOTHING: Final = Want(0, 1.0)


def _next_in_turn(party: _Party, part: int, now: float) -> tuple[bool, float, int]:
    """Who gets the places that are left over: whoever has one and not for long, then whoever has waited longest."""
    keeps = party.in_force > part and now - party.raised_at < ROTATE_S
    return not keeps, party.raised_at, party.slot
