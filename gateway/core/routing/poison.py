"""Which requests engines die of: strikes by fingerprint, and what is quarantined.

Owned by control.  A death is one outage of one backend, however many requests it took along: it begins with the first
sign and ends when the backend is well again.  A lost connection alone is no death; it becomes one when a probe finds
the backend gone or ill, when its counter shows another process, or when the engine says itself that it is dead.
Whoever was in flight at enough deaths is quarantined; whoever has completed since its first strike was a bystander.
Holds fingerprints, never text, and a bounded number of them.  Pure: ``now`` and ``at`` are monotonic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from gateway.core.routing.policy import PoisonPolicy

CONFIRM_S: Final = 10.0
"""How long a lost connection waits for a sign of a death.  vLLM's server ends within about 5 s of its engine."""

LINGER_S: Final = 5.0
"""How long a server whose engine is dead may go on to answer that all is well."""

MAX_SUSPECTS: Final = 1024
MAX_QUARANTINED: Final = 256


class Why(StrEnum):
    """Why a fingerprint is refused no longer."""

    EXPIRED = "its time is over"
    COMPLETED = "a request with it was completed"
    OPERATOR = "lifted by an operator"
    CROWDED = "too many others are newer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """Requests with ``fingerprint`` are refused until ``until``; ``backends`` died with them, one a death."""

    fingerprint: str
    backends: tuple[str, ...]
    first_at: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """Requests with ``fingerprint`` are let in again."""

    fingerprint: str
    why: Why


Verdict = Quarantined | Released


@dataclass(slots=True, eq=False)
class _Outage:
    backend: str
    began: float
    proven: bool = False
    seen_ill: bool = False  # by a probe
    ended: float = inf


@dataclass(slots=True)
class _Suspect:
    first_at: float
    last_at: float
    outages: list[_Outage] = field(default_factory=list)

    @property
    def deaths(self) -> tuple[str, ...]:
        return tuple(outage.backend for outage in self.outages if outage.proven)


class PoisonBook:
    """See the module.  ``changes`` grows with everything that workers have to be told."""

    def __init__(self) -> None:
        self.changes = 0
        self._policy = PoisonPolicy()
        self._outages: dict[str, _Outage] = {}  # the latest of each backend
        self._suspects: dict[str, _Suspect] = {}
        self._quarantined: dict[str, Quarantined] = {}

    # --- what happens ---------------------------------------------------------------------------------------------

    def configure(self, policy: PoisonPolicy) -> None:
        """These are the rules from now on; what was found under others stays, unless nothing is to be found now."""
        self._policy = policy
        if not policy.deaths and (self._suspects or self._quarantined):
            self._suspects.clear()
            self._quarantined.clear()
            self.changes += 1

    def strike(self, fingerprint: str, backend: str, *, at: float, now: float) -> list[Verdict]:
        """A request was in flight when its connection to ``backend`` ended, at ``at``."""
        if not self._policy.deaths or fingerprint in self._quarantined:
            return []
        outage = self._outage(backend, at)
        suspect = self._suspects.pop(fingerprint, None) or _Suspect(first_at=at, last_at=at)
        self._suspects[fingerprint] = suspect  # the newest last
        suspect.last_at = now
        if outage not in suspect.outages:
            suspect.outages.append(outage)
            self.changes += 1
        while len(self._suspects) > MAX_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]
        return list(self._judge([fingerprint], now)) if outage.proven else []

    def dead(self, backend: str, *, at: float, now: float) -> list[Verdict]:
        """The engine of ``backend`` says itself that it is dead."""
        return self._proved(self._outage(backend, at), now)

    def ill(self, backend: str, *, now: float) -> list[Verdict]:
        """A probe found nobody at ``backend``, or somebody who says that he is ill."""
        outage = self._outage(backend, now)
        outage.seen_ill = True
        return self._proved(outage, now)

    def restarted(self, backend: str, *, since: float, now: float) -> list[Verdict]:
        """Another process answers at ``backend``; the one before was last seen at ``since``."""
        latest = self._outages.get(backend)
        if latest is not None and latest.proven and latest.ended > since:
            latest.ended = min(latest.ended, now)  # that was it
            return []
        outage = self._outage(backend, now)
        outage.ended = now
        return self._proved(outage, now)

    def well(self, backend: str, *, now: float) -> None:
        """A probe found ``backend`` well: what comes next is another outage."""
        latest = self._outages.get(backend)
        if latest is not None and latest.proven and (latest.seen_ill or now - latest.began >= LINGER_S):
            latest.ended = min(latest.ended, now)

    def completed(self, fingerprint: str, *, at: float) -> list[Verdict]:
        """A request with ``fingerprint`` ended well at ``at``."""
        suspect = self._suspects.get(fingerprint)
        if suspect is not None and at >= suspect.first_at:
            del self._suspects[fingerprint]
            self.changes += 1
        held = self._quarantined.get(fingerprint)
        return [self._release(fingerprint, Why.COMPLETED)] if held is not None and at >= held.first_at else []

    def lift(self, fingerprint: str) -> list[Verdict]:
        """An operator lets the fingerprint in again."""
        return [self._release(fingerprint, Why.OPERATOR)] if fingerprint in self._quarantined else []

    def tick(self, *, now: float) -> list[Verdict]:
        """Forget what is over."""
        over = [name for name, it in self._quarantined.items() if it.until <= now]
        stale = [name for name, it in self._suspects.items() if not self._holds(it, now)]
        for name in stale:
            del self._suspects[name]
        self.changes += len(stale)
        return [self._release(name, Why.EXPIRED) for name in over]

    def _holds(self, suspect: _Suspect, now: float) -> bool:
        """Whether there is still something against it; takes out what was never proven."""
        suspect.outages = [it for it in suspect.outages if it.proven or now - it.began <= CONFIRM_S]
        return bool(suspect.outages) and now - suspect.last_at < self._policy.quarantine_s

    def _outage(self, backend: str, at: float) -> _Outage:
        """The outage of ``backend`` that something seen at ``at`` belongs to."""
        latest = self._outages.get(backend)
        over = latest is None or latest.ended < at or (not latest.proven and at - latest.began > CONFIRM_S)
        if latest is None or over:
            latest = self._outages[backend] = _Outage(backend, at)
        return latest

    def _proved(self, outage: _Outage, now: float) -> list[Verdict]:
        if outage.proven:
            return []
        outage.proven = True
        return list(self._judge(list(self._suspects), now))

    def _judge(self, fingerprints: Iterable[str], now: float) -> Iterator[Verdict]:
        for name in fingerprints:
            suspect = self._suspects[name]
            if len(suspect.deaths) < self._policy.deaths:
                continue
            del self._suspects[name]
            found = Quarantined(
                fingerprint=name,
                backends=suspect.deaths,
                first_at=suspect.first_at,
                until=now + self._policy.quarantine_s,
            )
            self._quarantined[name] = found
            self.changes += 1
            yield found
        while len(self._quarantined) > MAX_QUARANTINED:
            yield self._release(next(iter(self._quarantined)), Why.CROWDED)

    def _release(self, fingerprint: str, why: Why) -> Released:
        del self._quarantined[fingerprint]
        self.changes += 1
        return Released(fingerprint=fingerprint, why=why)

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def suspects(self) -> tuple[str, ...]:
        """Fingerprints with a strike that are let in."""
        return tuple(self._suspects)

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """Fingerprints that are refused, the oldest first."""
        return tuple(self._quarantined.values())
