"""Errors that the driver reports by number (Xid): which end the processes on a card, and which take the card away.

Pure.  The numbers are those of NVIDIA's catalog (docs.nvidia.com/deploy/xid-errors): a page fault of the application,
uncorrectable memory errors, firmware that does not answer, a card that fell off the bus.
"""

from __future__ import annotations

from typing import Protocol

from gateway.simulator.readings import XidEvent

FATAL = frozenset({31, 48, 79, 94, 95, 119})
"""After these the contexts on the card are dead, and with them EngineCore; 63, 64, 74 and 154, say, only tell."""
GONE = frozenset({79})
"""After these nothing of the card can be read any more, until a reset of the box."""


class Box(Protocol):
    """Where events are."""

    @property
    def xids(self) -> list[XidEvent]:
        """What was reported, oldest first."""


class XidWatch:
    """Whether a fatal error has come since an engine began; owner: that engine."""

    __slots__ = ("_box", "_gpus", "_seen")

    def __init__(self, box: Box, *, gpus: int) -> None:
        """``gpus``: it runs on so many, the first ones; what was reported before is not its death."""
        self._box = box
        self._gpus = gpus
        self._seen = len(box.xids)

    def is_killed(self) -> bool:
        """Whether one has come since the last look."""
        events = self._box.xids
        fresh, self._seen = events[self._seen :], len(events)  # a mended box has none: it counts anew
        return any(event.code in FATAL and event.gpu < self._gpus for event in fresh)
