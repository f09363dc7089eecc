"""The audit trail: one entry for each thing that an operator changed, or tried to.

Handed to a sink that `gateway.app` chooses (the event log today).  Holds the token's name, never the token.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from gateway.admin.access import Caller


class AuditResult(StrEnum):
    """What became of it."""

    APPLIED = "applied"
    REFUSED = "refused"
    FAILED = "failed"


class AuditEntry(Struct, frozen=True, kw_only=True):
    """Who did what with which result.  ``details`` are sentences: the changes, or the faults."""

    at_wall: float
    actor: str
    scope: str
    peer: str
    action: str
    result: AuditResult
    details: tuple[str, ...] = ()


class AuditTrail:
    """Makes entries and hands them on."""

    def __init__(self, sink: Callable[[AuditEntry], None], now_wall: Callable[[], float]) -> None:
        self._sink = sink
        self._now_wall = now_wall

    def note(self, caller: Caller, action: str, *, result: AuditResult, details: tuple[str, ...] = ()) -> None:
        """Record that ``caller`` tried ``action``."""
        entry = AuditEntry(
            at_wall=self._now_wall(),
            actor=caller.name,
            scope=caller.scope.word,
            peer=caller.peer,
            action=action,
            result=result,
            details=details,
        )
        self._sink(entry)
