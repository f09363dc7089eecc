"""Weighted fairness between flows: who is next, by a virtual clock (start-time fair queueing, charged afterwards).

Station admit.  A flow is what one key sends to one pool; without keys there is one.  Each has a virtual time, which
goes on by what its requests have cost over its weight, and whoever is furthest behind is next.  A flow that had nothing
to ask for begins at the present and saves nothing up.  What a request costs is known at its end only: until then it
counts with what its flow's requests have cost so far, and a wrong guess is forgotten with it, so it moves nobody's
present.  Of two flows that never run dry neither gets more over its weight than the other by more than one request of
each, and what is being served (Goyal, Vin, Cheng 1996, theorem 1, with several servers).
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
    """One flow's place in virtual time.

    ``settled``: what its ended requests have cost over its weight; ``reserved``: tokens that those which are being
    served are taken to cost.
    """

    __slots__ = ("expected", "name", "reserved", "settled", "weight")

    def __init__(self, name: str, *, weight: float, expected: float = FIRST_GUESS_TOKENS) -> None:
        self.name = name
        self.weight = max(LEAST_WEIGHT, weight)
        self.expected = expected
        self.settled = 0.0
        self.reserved = 0.0

    @property
    def start(self) -> float:
        """The virtual time of its next request."""
        return self.settled + self.reserved / self.weight

    def begin(self, virtual: float) -> None:
        """It asks for something again, having asked for nothing."""
        self.settled = max(virtual, self.settled)

    def give(self) -> float:
        """Its next request is served; what that is charged."""
        self.reserved += self.expected
        return self.expected

    def correct(self, charged: float, cost: float) -> None:
        """A request that was charged ``charged`` has cost ``cost``."""
        self.reserved = max(0.0, self.reserved - charged)
        self.settled += cost / self.weight
        self.expected += _LEARN * (cost - self.expected)


class VirtualClock:
    """The present of one server: how far those have come who were served; it never goes back."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def serve(self, flow: Flow) -> float:
        """Serve the next request of ``flow``; what it is charged."""
        self.now = max(self.now, flow.settled)
        return flow.give()
