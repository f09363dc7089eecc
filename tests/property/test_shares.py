"""Shares of a limit over workers: whatever is late, lost, killed or begun anew, together they never hold too many.

Workers, control and the connections between them in miniature: every message waits in a queue of its own until the
story delivers it, so any of them can be as late as it likes.
"""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.admission.shares import AWAIT_S, ShareBook, Want

SLOTS = 3
STEPS = 400
ROUNDS = 60

WEIGHTS = {
    "admit": 8.0,
    "finish": 3.0,
    "beat": 3.0,
    "worker_hears": 5.0,
    "control_hears": 6.0,
    "tick": 5.0,
    "connect": 3.0,
    "replace": 1.0,
    "cut": 0.3,
    "kill": 0.2,
    "control_begins_anew": 0.15,
    "long_after": 0.1,
}


class Process:
    """A worker: admits while it holds less than its share, whether or not control hears of it."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.share: int | None = None
        self.holding = 0
        self.connected = False
        self.to_worker: deque[int] = deque()
        self.to_control: deque[tuple[int, int | None]] = deque()

    @property
    def most(self) -> int:
        return max(self.holding, self.share or 0)

    def say(self) -> None:
        if self.connected:
            self.to_control.append((self.holding, self.share))


class Story:
    """One gateway; every method of a name in WEIGHTS is something that may happen at any time."""

    def __init__(self, seed: int, limit: int) -> None:
        self.chance = random.Random(seed)
        self.limit = limit
        self.now = 0.0
        self.names = 0
        self.quiet = False
        self.told: dict[int, int | None] = {}
        self.book = ShareBook(workers=SLOTS, inherited=False, now=self.now)
        self.workers: list[Process | None] = [None] * SLOTS

    @property
    def living(self) -> list[tuple[int, Process]]:
        return [(slot, it) for slot, it in enumerate(self.workers) if it is not None]

    def happen(self, name: str) -> None:
        slot, many = self.chance.randrange(SLOTS), self.chance.randint(1, self.limit)
        it = self.workers[slot]
        match name:
            case "tick" | "control_begins_anew" | "long_after":
                getattr(self, name)()
            case "replace":
                self.replace(slot)
            case "admit" | "finish" if it is not None:
                getattr(self, name)(it, many)
            case _ if it is not None:
                getattr(self, name)(slot, it)

    def replace(self, slot: int) -> None:
        if self.workers[slot] is None:
            self.names += 1
            self.workers[slot] = Process(self.names)

    def connect(self, slot: int, it: Process) -> None:
        if not it.connected:
            it.connected = True
            self.book.join(it.name, slot, now=self.now)
            self.told.pop(it.name, None)
            it.say()

    def cut(self, _slot: int, it: Process) -> None:
        """The connection breaks, and with it what was on the way; the worker serves on."""
        if it.connected:
            it.connected = False
            it.to_worker.clear()
            it.to_control.clear()
            self.book.leave(it.name, now=self.now)

    def kill(self, slot: int, it: Process) -> None:
        self.cut(slot, it)
        self.workers[slot] = None

    def admit(self, it: Process, many: int) -> None:
        it.holding = max(it.holding, min(it.holding + many, it.share or 0))

    def finish(self, it: Process, many: int) -> None:
        it.holding = max(0, it.holding - many)

    def beat(self, _slot: int, it: Process) -> None:
        it.say()

    def worker_hears(self, _slot: int, it: Process) -> None:
        if it.to_worker:
            it.share = it.to_worker.popleft()
            it.say()

    def control_hears(self, _slot: int, it: Process) -> None:
        if it.to_control:
            holding, share = it.to_control.popleft()
            self.book.beat(it.name, holding=holding, share=share)

    def tick(self) -> None:
        self.now += 0.1
        connected = [it for _, it in self.living if it.connected]
        fresh = [it.name for it in connected if self.chance.random() < 0.9]
        wants = None
        if not self.quiet and self.chance.random() < 0.7:  # requests wait here and there
            wants = {name: Want(self.chance.choice((0, 0, 1, 5, 50)), self.chance.uniform(0.01, 5)) for name in fresh}
        self.book.share_out(self.limit, fresh=fresh, now=self.now, wants=wants)
        for it in connected:
            share = self.book.told(it.name)
            if share is not None and share != self.told.get(it.name):
                self.told[it.name] = share
                it.to_worker.append(share)

    def control_begins_anew(self) -> None:
        for slot, it in self.living:
            self.cut(slot, it)
        self.book = ShareBook(workers=SLOTS, inherited=True, now=self.now)

    def long_after(self) -> None:
        """Every worker that lives has come back by then."""
        for slot, it in self.living:
            self.connect(slot, it)
            while it.to_control:
                self.control_hears(slot, it)
        self.now += AWAIT_S

    def all_is_quiet_but(self, busy: int) -> None:
        """Every worker is there and has nothing to do, but for one that takes what it gets."""
        self.quiet = True
        for slot in range(SLOTS):
            self.replace(slot)
        for slot, it in self.living:
            it.holding = 0
            self.connect(slot, it)
        for _ in range(ROUNDS):
            for slot, it in self.living:
                it.say()
                while it.to_worker or it.to_control:
                    self.worker_hears(slot, it)
                    self.control_hears(slot, it)
            it = self.workers[busy]
            assert it is not None
            self.admit(it, self.limit)
            self.tick()
            assert self.most <= self.limit

    @property
    def most(self) -> int:
        return sum(it.most for _, it in self.living)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), limit=st.integers(1, 12), busy=st.integers(0, SLOTS - 1))
def test_together_they_never_hold_more_and_one_alone_gets_all(seed: int, limit: int, busy: int) -> None:
    story = Story(seed, limit)
    for name in story.chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        story.happen(name)
        assert story.most <= limit, f"after {name}"
    story.all_is_quiet_but(busy)
    only = story.workers[busy]
    assert only is not None
    assert only.holding == limit
