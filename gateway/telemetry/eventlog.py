"""Tells events: to the log at the level that the catalogue gives them, and to the live feed.

The one way in which control says anything.  Must not decide: what is told and when is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.link.messages import RequestRecord
from gateway.telemetry.bus import Bus
from gateway.telemetry.events import EVENTS, EventName, Level
from gateway.telemetry.lines import encode_fields
from gateway.telemetry.logs import Log
from gateway.telemetry.settled import settled_event


class EventLog:
    """Owns nothing; holds the log and the live feed that events go to."""

    def __init__(self, log: Log, bus: Bus) -> None:
        self._log = log
        self._bus = bus

    def emit(self, name: EventName, /, **fields: object) -> None:
        """Tell ``name`` with ``fields``, which the catalogue must list."""
        spec = EVENTS[name]
        self._tell(name, spec.level_of(fields), encode_fields(fields), live=spec.live)

    def settled(self, records: Iterable[RequestRecord]) -> None:
        """Tell of settled requests, in order."""
        level = EVENTS[EventName.REQUEST_SETTLED].level
        for record in records:
            self._tell(EventName.REQUEST_SETTLED, level, encode_fields(settled_event(record)), live=True)

    def _tell(self, name: EventName, level: Level, data: bytes, *, live: bool) -> None:
        """``data``: the fields, encoded once for the log and the feed."""
        self._log.tell(level, name.value, data)
        if live:
            self._bus.publish(name.value, data)
