"""Tells events: to the log at the level that the catalogue gives them, and to the live feed.

The one way in which control says anything.  Must not decide: what is told and when is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.telemetry.bus import Bus
from gateway.telemetry.events import EVENTS, EventName
from gateway.telemetry.lines import encode_fields
from gateway.telemetry.logs import Log


class EventLog:
    """Owns nothing; holds the log and the live feed that events go to."""

    def __init__(self, log: Log, bus: Bus) -> None:
        self._log = log
        self._bus = bus

    def emit(self, name: EventName, /, **fields: object) -> None:
        """Tell ``name`` with ``fields``, which the catalogue must list."""
        self.tell(name, fields)

    def tell(self, name: EventName, fields: Mapping[str, object]) -> None:
        """The same, with the fields as a mapping.  They are encoded once, for the log and for the feed."""
        spec = EVENTS[name]
        data = encode_fields(fields)
        self._log.tell(spec.level_of(fields), name.value, fields, data=data)
        if spec.live:
            self._bus.publish(name.value, data)
