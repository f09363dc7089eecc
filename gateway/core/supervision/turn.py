"""The draft of one step: children under change, actions and sentences in their order.

Lives inside one call of ``step`` and never leaves it; so the functions of supervision can each change what they are
about without handing tuples around.  Decides nothing.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.core.step import Step
from gateway.core.supervision.state import (
    Child,
    Name,
    Supervision,
    SupervisionAction,
    SupervisionPolicy,
    SupervisionStep,
)


class Turn:
    """Owns the draft.  ``state`` is current in everything but its children; :meth:`whole` has both."""

    __slots__ = ("_actions", "_children", "_reasons", "now", "policy", "state")

    def __init__(self, state: Supervision, *, policy: SupervisionPolicy, now: float) -> None:
        self.state = state
        self.policy = policy
        self.now = now
        self._children = {child.name: child for child in state.children}
        self._actions: list[SupervisionAction] = []
        self._reasons: list[str] = []

    def child(self, name: Name) -> Child:
        """The child as it is in the draft."""
        return self._children[name]

    def children(self) -> tuple[Child, ...]:
        """All of them, as they are now in the draft."""
        return tuple(self._children.values())

    def put(self, child: Child) -> None:
        """Replace the child of that name."""
        self._children[child.name] = child

    def act(self, action: SupervisionAction) -> None:
        """Have ``action`` performed, after those before it."""
        self._actions.append(action)

    def tell(self, sentence: str) -> None:
        """Add a sentence to the reason."""
        self._reasons.append(sentence)

    def whole(self) -> Supervision:
        """The state with its children as drafted."""
        return replace(self.state, children=self.children())

    def done(self) -> SupervisionStep:
        """The step that the draft has become."""
        return Step(self.whole(), tuple(self._actions), "; ".join(self._reasons))
