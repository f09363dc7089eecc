"""Drives the supervision machine through a story: what happens, when, and what it answers.

Keeps the state and the clock, so a test reads as a sequence of events; nothing here decides.
"""

from __future__ import annotations

from gateway.core.supervision.state import (
    CONTROL,
    Child,
    Ended,
    Heard,
    Name,
    Role,
    Supervision,
    SupervisionAction,
    SupervisionEvent,
    SupervisionPolicy,
    Tick,
    begin,
)
from gateway.core.supervision.step import next_at, step
from gateway.core.tether import Beat, Ready


def worker(slot: int) -> Name:
    return Name(Role.WORKER, slot)


class Story:
    """``now`` is the test's to move; ``reason`` is that of the last step."""

    def __init__(self, *, workers: int = 1, policy: SupervisionPolicy | None = None) -> None:
        self.policy = policy or SupervisionPolicy()
        self.now = 1000.0
        self.state: Supervision = begin(workers=workers, now=self.now)
        self.reason = ""
        self.names = [child.name for child in self.state.children]

    def happens(self, event: SupervisionEvent) -> tuple[SupervisionAction, ...]:
        decided = step(self.state, event, policy=self.policy, now=self.now)
        self.state, self.reason = decided.state, decided.reason
        return decided.actions

    def tick(self, after_s: float = 0.0) -> tuple[SupervisionAction, ...]:
        self.now += after_s
        return self.happens(Tick())

    def ready(self, name: Name) -> tuple[SupervisionAction, ...]:
        return self.happens(Heard(name, Ready()))

    def ends(self, name: Name, code: int = -9) -> tuple[SupervisionAction, ...]:
        return self.happens(Ended(name, code))

    def all_ready(self) -> tuple[SupervisionAction, ...]:
        """Everything starts and gets ready; the actions of the last of it."""
        self.tick()
        return [self.ready(name) for name in reversed(self.names)][-1]

    def passes(self, seconds: float) -> list[SupervisionAction]:
        """Time passes with every living child beating each second; all actions meanwhile."""
        actions: list[SupervisionAction] = []
        until = self.now + seconds
        while self.now < until:
            actions += self.tick(min(1.0, until - self.now))
            for child in self.state.children:
                if child.lives:
                    actions += self.happens(Heard(child.name, Beat()))
        return actions

    def child(self, name: Name = CONTROL) -> Child:
        (found,) = [child for child in self.state.children if child.name == name]
        return found

    def due_in(self) -> float:
        """How long until the next Tick can matter."""
        return next_at(self.state, policy=self.policy) - self.now
