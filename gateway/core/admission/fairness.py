"""Weighted fairness between flows: who is next, by start times of a virtual clock (start-time fair queueing).

Station admit.  A flow is what one key sends to one pool; without keys there is one.  Each has a virtual time, which
goes on by what it is given over its weight, and whoever is furthest behind is next.  A flow that had nothing to ask for
begins at the present and saves nothing up.  What a request costs is known at its end only: it is charged what its
flow's requests have cost so far, and the difference when it has ended.  So of any two flows that never run dry, neither
gets more over its weight than the other by more than one request of each (Goyal, Vin, Cheng 1996, theorem 1).
Pure: virtual time is moved by what is given, never by a clock.
"""

from __future__ import annotations

from typing import Final

FIRST_GUESS_TOKENS: Final = 500.0
"""What the first request of a flow is taken to cost."""

_LEARN: Final = 0.2
"""How much of the guess is the latest request's cost."""

LEAST_WEIGHT: Final = 1e-6


class Flow:
    """One flow's place in virtual time.  ``start``: of its next request while it asks for something."""

    __slots__ = ("_finish", "expected", "name", "start", "weight")

    def __init__(self, name: str, *, weight: float, expected: float = FIRST_GUESS_TOKENS) -> None:
        self.name = name
        self.weight = max(LEAST_WEIGHT, weight)
        self.expected = expected
        self.start = 0.0
        self._finish = 0.0

    def begin(self, virtual: float) -> None:
        """It asks for something again, having asked for nothing."""
        self.start = max(virtual, self._finish)

    def give(self) -> float:
        """Its next request is served; what that is charged."""
        self._finish = self.start + self.expected / self.weight
        self.start = self._finish
        return self.expected

    def correct(self, charged: float, cost: float) -> None:
        """A request that was charged ``charged`` has cost ``cost``."""
        shift = (cost - charged) / self.weight
        self._finish += shift
        self.start += shift
        self.expected += _LEARN * (cost - self.expected)


class VirtualClock:
    """The virtual time of one server: the start of what was served last; it never goes back."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def serve(self, flow: Flow) -> float:
        """Serve the next request of ``flow``; what it is charged."""
        self.now = max(self.now, flow.start)
        return flow.give()
