"""Tells events: to the log at the level that the catalogue gives them, and to the live feed.

The one way in which control says anything.  Must not decide: what is told and when is the caller's affair.
"""

from __future__ import annotations

from typing import Final

import msgspec
from structlog.typing import FilteringBoundLogger

from gateway.telemetry.bus import Bus
from gateway.telemetry.events import EVENTS, EventName, Level

_encoder: Final = msgspec.json.Encoder(enc_hook=str)


class EventLog:
    """Owns nothing; holds the log and the live feed that events go to."""

    def __init__(self, log: FilteringBoundLogger, bus: Bus) -> None:
        self._bus = bus
        self._by_level = {
            Level.DEBUG: log.debug,
            Level.INFO: log.info,
            Level.WARNING: log.warning,
            Level.ERROR: log.error,
        }

    def emit(self, name: EventName, /, **fields: object) -> None:
        """Tell ``name`` with ``fields``, which the catalogue must list."""
        spec = EVENTS[name]
        self._by_level[spec.level_of(fields)](name.value, **fields)
        if spec.live:
            self._bus.publish(name.value, _encoder.encode(fields))
