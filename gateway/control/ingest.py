"""Takes in settled requests: into the history, the metrics, the log and the live feed.

Best effort: the workers' counters in their heartbeats are what is exact.  Returns at once; a history that is full or
broken drops and counts by itself.  Must not decide about backends.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.link.messages import RequestRecord
from gateway.ports import History
from gateway.telemetry.eventlog import EventLog
from gateway.telemetry.metrics import Metrics


class Ingest:
    """Holds the places that a record goes to; owns nothing."""

    def __init__(self, *, history: History, metrics: Metrics, events: EventLog) -> None:
        self._history = history
        self._metrics = metrics
        self._events = events

    def settled(self, records: Sequence[RequestRecord]) -> None:
        """Take in a batch, in order."""
        self._history.add(records)
        self._metrics.settled(records)
        self._events.settled(records)
