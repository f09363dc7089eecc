"""Station admit: what of request bodies is in memory while they come in, all together.

Owner of the sum; one a worker.  Each body is bounded by itself (``limits.body_bytes``), but many at once are a multiple
of that, and who sends one slowly holds it for long.  The first bytes of each are not counted, so that a crowd of large
bodies keeps no short one out.
"""

from __future__ import annotations

from typing import Final

from gateway.refusals import ReceptionFull

FREE_BYTES: Final = 64 * 1024
"""Of each body that are not counted."""

RETRY_AFTER_S: Final = 2.0
"""Some of the bodies that come in are whole by then, as a rule."""


class Intake:
    """See the module."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0

    def take(self, count_bytes: int, *, limit_bytes: int) -> None:
        """So many more are there; to be :meth:`let_go`.  Raises ReceptionFull, and then nothing was taken."""
        if self.held_bytes + count_bytes > limit_bytes:
            raise ReceptionFull(
                "the gateway is receiving as many bytes of request bodies as it may", retry_after_s=RETRY_AFTER_S
            )
        self.held_bytes += count_bytes

    def let_go(self, count_bytes: int) -> None:
        """They are no longer being received."""
        self.held_bytes -= count_bytes
