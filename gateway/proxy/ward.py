"""Station admit and settle: requests that engines die of, by fingerprint.

Owner of this worker's copy of what control suspects and refuses.  A fingerprint costs a hash of the body, so it is made
only when somebody asks: a backend died, control suspects some, or a long body is about to be let go.  With nothing
suspected a request meets one test of an attribute.  Never holds text.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.core.link.messages import Quarantine, RequestRecord
from gateway.core.routing.evidence import ENDED_WELL, ENGINE_DEAD
from gateway.core.stream.summary import Outcome
from gateway.errors import Quarantined
from gateway.proxy.visit import Visit


class Ward:
    """See the module; one a worker, part of its desk."""

    def __init__(self, *, clock: Callable[[], float], wall: Callable[[], float] = time.time) -> None:
        self.watching = False
        """Whether anything is suspected or refused."""
        self._clock = clock
        self._wall = wall
        self._suspects: frozenset[str] = frozenset()
        self._until: dict[str, float] = {}

    def apply(self, message: Quarantine) -> None:
        """Control says what is suspected and refused now."""
        self._suspects = frozenset(message.suspects)
        self._until = message.until
        self.watching = bool(self._suspects or self._until)

    def check(self, visit: Visit) -> None:
        """Refuse a request that is quarantined.  Raises Quarantined."""
        until = self._until.get(visit.known_by())
        if until is None or (left_s := until - self._clock()) <= 0:
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._wall() + left_s))
        message = f"backends died with a request like this one in flight, so it is not served until {at}"
        raise Quarantined(message, retry_after_s=left_s)

    def verdict(self, visit: Visit, record: RequestRecord) -> tuple[str, str] | None:
        """What the end of a request says of its fingerprint: (code for control, fingerprint), None for nothing.

        Lost connections are reported where they are noticed.
        """
        summary = record.summary
        if summary is not None and summary.error is not None and summary.error.fatal:
            return ENGINE_DEAD, visit.known_by()
        if not self.watching or record.outcome is not Outcome.OK:
            return None
        fingerprint = visit.known_by()
        return (ENDED_WELL, fingerprint) if fingerprint in self._suspects or fingerprint in self._until else None
