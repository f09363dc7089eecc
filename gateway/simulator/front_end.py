"""The API process of a simulated engine: how much of what the engine made it sends on, and what it merges.

Part of the engine machine.  It sends so many chunks a second and no more; what it has to leave goes out with the next
tokens of the same answer.  Must not know what tokens say.
"""

from __future__ import annotations

from gateway.simulator.request import Emission
from gateway.simulator.sequence import Sequence


class FrontEnd:
    """Owner of the credit that time gives it, in chunks."""

    __slots__ = ("_chunks_per_s", "_credit", "_turn")

    def __init__(self, *, chunks_per_s: float) -> None:
        self._chunks_per_s = chunks_per_s
        self._credit = 0.0
        self._turn = 0

    def send(self, batch: list[Sequence], emissions: list[Emission], *, duration_s: float) -> None:
        """Let out what is due after a step of this length."""
        left = self._credit
        self._credit = (left if left < 1.0 else 1.0) + self._chunks_per_s * duration_s  # noqa: FURB136 - each step
        if len(batch) <= self._credit:
            emissions.extend([sequence.leave() for sequence in batch if sequence.interval == 1 or sequence.due()])
            return
        self._turn %= len(batch)
        served = 0
        for sequence in batch[self._turn :] + batch[: self._turn]:
            if not sequence.due() or (self._credit < 1 and sequence.finish is None):
                continue
            emissions.append(sequence.leave())
            self._credit -= 1
            served += 1
        self._turn += served
