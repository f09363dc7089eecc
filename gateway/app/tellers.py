"""Sinks that turn what the parts of control report into events.

Used once, where control is built.  Must not decide what is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.admin.audit import AuditEntry
from gateway.store.events import StoreEvent
from gateway.telemetry.eventlog import EventLog
from gateway.telemetry.events import EventName


def store_teller(events: EventLog) -> Callable[[StoreEvent], None]:
    """A sink for what the history has to say."""

    def tell(event: StoreEvent) -> None:
        fields: dict[str, Any] = msgspec.to_builtins(event)
        events.emit(EventName(fields.pop("event")), **fields)

    return tell


def keepsake_teller(events: EventLog) -> Callable[[str], None]:
    """A sink for what goes wrong with the keepsake."""

    def tell(problem: str) -> None:
        events.emit(EventName.KEEPSAKE_PROBLEM, problem=problem)

    return tell


def audit_teller(events: EventLog) -> Callable[[AuditEntry], None]:
    """A sink for what operators changed."""

    def tell(entry: AuditEntry) -> None:
        events.emit(EventName.OPERATOR_CHANGE, **msgspec.to_builtins(entry))

    return tell
