"""Requests that come to an engine from clients that are not ours: a drift of the workload.

Part of the engine machine.  They are real sequences in its batch and its counters, and nobody reads their tokens.
Their numbers are below 0.  Must not decide how many there are.
"""

from __future__ import annotations

from gateway.simulator.request import Emission, SimRequest


class Strangers:
    """Owner of the strangers' numbers."""

    __slots__ = ("_last", "_open", "_wanted", "ever")

    def __init__(self) -> None:
        self._open: list[int] = []
        self._last = 0
        self._wanted = 0
        self.ever = False  # some came, so that emissions may be theirs

    def surplus(self, wanted: int) -> list[int]:
        """So many are wanted from now on: the numbers of those that leave."""
        self._wanted = wanted
        leaving, self._open = self._open[wanted:], self._open[:wanted]
        return leaving

    def missing(self) -> list[tuple[int, SimRequest]]:
        """Those that come, as many as are missing: answers of about 500 tokens, each with its own words."""
        coming = []
        while len(self._open) < self._wanted:
            self.ever = True
            self._last -= 1
            self._open.append(self._last)
            tokens = 400 + 37 * -self._last % 200
            coming.append(
                (self._last, SimRequest(prompt_tokens=100, max_tokens=tokens, ignore_eos=True, seed=-self._last))
            )
        return coming

    def ended(self, number: int) -> None:
        """An answer has come to its end; if it was a stranger's, the next one comes."""
        if number < 0 and number in self._open:
            self._open.remove(number)

    def without(self, emissions: list[Emission]) -> list[Emission]:
        """What is left for our clients."""
        return [emission for emission in emissions if emission.request_id > 0] if self.ever else emissions
