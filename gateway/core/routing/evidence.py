"""What speaks for and against a backend: results of probes, endings of requests, and the operator's word.

The events of the health machine, and the tally of lately ended requests that it keeps.  Made by probes and from what
workers report.  Must not judge: that is :mod:`gateway.core.routing.health`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gateway.errors import BackendDied, BackendError, BackendGarbled, BackendSilent, BackendStalled, ConnectFailed

COUNTED_CODES: Final = frozenset(
    error.code for error in (BackendDied, BackendError, BackendGarbled, BackendSilent, BackendStalled, ConnectFailed)
)
"""Codes of passive failures that speak against a backend."""

_STATUS_PREFIX: Final = "status_"
_BACKPRESSURE: Final = 503
_SERVER_ERRORS: Final = range(500, 600)

ENGINE_DEAD: Final = "engine_dead"
"""Code of a failure in which the engine said that it is dead; the failure itself is counted under another code."""

ENDED_WELL: Final = ""
"""Code of a request that ended well, told where its fingerprint is under suspicion."""

LOST_CONNECTION: Final = frozenset({BackendDied.code, ConnectFailed.code})
"""Codes after which it is worth asking at once whether anything listens there."""


def speaks_against(code: str) -> bool:
    """Whether a passive failure with ``code`` counts: an error of :data:`COUNTED_CODES`, or ``status_500`` and such.

    ``status_503`` is backpressure and any 4xx the client's affair: neither counts, like every code that is not known.
    """
    status = code.removeprefix(_STATUS_PREFIX)
    if status == code:
        return code in COUNTED_CODES
    return status.isdecimal() and int(status) in _SERVER_ERRORS and int(status) != _BACKPRESSURE


class ProbeResult(StrEnum):
    """What one probe of ``/health`` came to; the value is the phrase that people read."""

    OK = "/health answered 200"
    REFUSED = "connection refused"
    UNREACHABLE = "no connection"
    TIMEOUT = "no answer in time"
    BAD_STATUS = "/health answered an error status"
    GARBLED = "the answer was not HTTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A probe ended; ``detail`` replaces the phrase of the result where more is known ("/health answered 503")."""

    result: ProbeResult
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """A worker's attempt failed with error ``code`` at monotonic ``at``."""

    code: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsSucceeded:
    """``count`` requests ended well."""

    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """The engine's counter fell: another process answers, first seen at monotonic ``at``."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAsked:
    """Send the backend nothing new; ``why`` is a phrase."""

    why: str


@dataclass(frozen=True, slots=True)
class DrainLifted:
    """The backend may serve again."""


HealthEvent = Probed | RequestFailed | RequestsSucceeded | Restarted | DrainAsked | DrainLifted


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How requests ended lately, in two halves of the window so that it needs no list of times."""

    started: float
    failed: int = 0
    good: int = 0
    older_failed: int = 0
    older_good: int = 0

    def add(self, now: float, window_s: float, *, failed: int = 0, good: int = 0) -> Tally:
        """The tally with ``failed`` and ``good`` more endings at ``now``; forgets what is older than the window."""
        age_s = now - self.started
        if age_s >= window_s:
            return Tally(started=now, failed=failed, good=good)
        if age_s >= window_s / 2:
            return Tally(started=now, failed=failed, good=good, older_failed=self.failed, older_good=self.good)
        return replace(self, failed=self.failed + failed, good=self.good + good)

    @property
    def all_failed(self) -> int:
        """Failures within the window."""
        return self.failed + self.older_failed

    @property
    def all_ended(self) -> int:
        """Endings within the window."""
        return self.all_failed + self.good + self.older_good
