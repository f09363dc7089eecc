"""What a decision machine answers: the next state, the actions to perform and one sentence why.

Every machine of the core has the form ``step(state, event, policy, now) -> Step``.  Actions are data, so that they can
be compared in a test, written down, replayed and shown as a dry run; the shell performs them.  Must not hold or do
anything itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State")
Action = TypeVar("Action")


@dataclass(frozen=True, slots=True)
class Step(Generic[State, Action]):
    """One step of a machine: ``reason`` is a sentence for people, "" when there is nothing to tell."""

    state: State
    actions: tuple[Action, ...] = ()
    reason: str = ""
