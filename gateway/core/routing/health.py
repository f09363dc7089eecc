"""Health of one backend: a pure machine that turns probes and passive failures into serving or ejected.

Stepped by the control loop, owned by the fleet.  A 200 of ``/health`` proves little: an engine that answers it while
its completions die is ejected by passive failures and re-admitted after a delay that doubles, up to a bound.  Only
failures of the backend count: a storm of 4xx is the clients' affair, 429 and 503 are backpressure, and a backend that
is too busy to answer probes in time but ends requests well is not ill.  A probe that sees
the port refused proves that the process is gone, so the one after it starts with a clean record: a restarted engine
serves again at its first good probe.  Must not read a clock: ``now`` and ``at`` are seconds of one monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from gateway.core.routing.backend import ALWAYS, BackendState, may_follow
from gateway.core.routing.evidence import (
    ENGINE_DEAD,
    LOST_CONNECTION,
    DrainAsked,
    DrainLifted,
    HealthEvent,
    Probed,
    ProbeResult,
    RequestFailed,
    RequestsSucceeded,
    Restarted,
    Tally,
    speaks_against,
)
from gateway.core.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Enter:
    """The backend is in a new state; ``reason`` is one sentence."""

    state: BackendState
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeNow:
    """Do not wait for the next turn: something just went wrong."""


@dataclass(frozen=True, slots=True)
class Kept:
    """It would be ejected for failing requests, but no more of its pool may be; the state's reason says so."""


HealthAction = Enter | ProbeNow | Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """Thresholds and periods.

    ``fall`` bad probes in a row eject, ``rise`` good ones admit.  Probes run every ``period_s``, every ``suspect_s``
    while something is wrong.  ``passive_fall`` failures eject when at least half of the requests that ended within
    about ``window_s`` failed.  Re-admission after that waits ``readmit_s``, doubled at each further time up to
    ``readmit_max_s``; ``probation_s`` of serving without another ejection forgets them.
    """

    fall: int = 3
    rise: int = 1
    period_s: float = 2.0
    suspect_s: float = 0.5
    passive_fall: int = 5
    window_s: float = 10.0
    readmit_s: float = 2.0
    readmit_max_s: float = 60.0
    probation_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is known of one backend.

    ``since`` is when ``state`` was entered.  ``good`` and ``bad`` count probes in a row; ``bad_since`` is the first of
    the bad ones, ``bad_result`` and ``bad_what`` tell of the last (``bad_mixed``: not all of a kind).  ``strikes``
    counts ejections by passive failures that are not forgotten yet; not before ``readmit_at`` may the backend serve
    again; ``proven``: a request ended well since it serves.  ``by_requests``: ejected by failing requests, and ``kept``
    when that may not be.  ``serving_since`` is when it began to serve, ``ALWAYS`` before anybody looked;
    ``fresh`` says that the next beginning counts as one.
    """

    state: BackendState
    since: float
    reason: str
    good: int = 0
    bad: int = 0
    bad_since: float = 0.0
    bad_result: ProbeResult | None = None
    bad_what: str = ""
    bad_mixed: bool = False
    tally: Tally
    strikes: int = 0
    readmit_at: float = 0.0
    proven: bool = False
    by_requests: bool = False
    kept: bool = False
    serving_since: float = ALWAYS
    fresh: bool = True


HealthStep = Step[Health, HealthAction]


def begin(now: float, *, fresh: bool = True) -> Health:
    """A backend of which nothing is known yet; not ``fresh``: it may have served long before the gateway began."""
    return Health(state=BackendState.UNKNOWN, since=now, reason="not probed yet", tally=Tally(started=now), fresh=fresh)


def probe_period_s(health: Health, policy: HealthPolicy) -> float:
    """How long to wait before the next probe."""
    well = health.bad == 0 and health.state in {BackendState.SERVING, BackendState.DRAINING}
    return policy.period_s if well else policy.suspect_s


def step(health: Health, event: HealthEvent, *, policy: HealthPolicy, now: float, may_eject: bool = True) -> HealthStep:
    """Decide what ``event`` means.  A changed state comes with one :class:`Enter`, its reason is the step's.

    ``may_eject``: failing requests may; probes may always.
    """
    match event:
        case Probed(result=ProbeResult.OK):
            return _probed_well(health, policy=policy, now=now)
        case Probed():
            return _probed_ill(health, event, policy=policy, now=now)
        case RequestFailed():
            return _request_failed(health, event, policy=policy, now=now, may_eject=may_eject)
        case RequestsSucceeded(count=count):
            return Step(_request_succeeded(health, count, policy=policy, now=now))
        case Restarted(at=at):
            serves = health.state is BackendState.SERVING
            return Step(replace(health, serving_since=at) if serves else replace(health, fresh=True))
        case DrainAsked(why=why):
            if health.state is BackendState.DRAINING or not may_follow(health.state, BackendState.DRAINING):
                return Step(health, reason=f"cannot drain a backend that is {health.state}")
            return _enter(health, BackendState.DRAINING, now=now, reason=f"draining: {why}")
        case DrainLifted():
            return _drain_lifted(health, now)
        case _:
            assert_never(event)


def _probed_well(health: Health, *, policy: HealthPolicy, now: float) -> HealthStep:
    was_bad = health.bad
    known = replace(health, good=health.good + 1, bad=0, bad_result=None, bad_what="", bad_mixed=False)
    match health.state:
        case BackendState.SERVING:
            if health.strikes and now - health.since >= policy.probation_s:
                known = replace(known, strikes=0)
            return Step(_calmed(known, policy=policy, now=now) if known.kept else known)
        case BackendState.UNKNOWN | BackendState.EJECTED:
            if known.good < policy.rise or now < health.readmit_at:
                return Step(known)
            reason = f"serving: {ProbeResult.OK}"
            if health.state is BackendState.EJECTED:
                after = f"after {was_bad} bad probes" if was_bad else f"after a pause of {now - health.since:.1f} s"
                reason = f"serving again: {ProbeResult.OK} {after}"
            return _enter(known, BackendState.SERVING, now=now, reason=reason)
        case _:
            return Step(known)


def _probed_ill(health: Health, probe: Probed, *, policy: HealthPolicy, now: float) -> HealthStep:
    what = probe.detail or probe.result.value
    first = health.bad == 0
    known = replace(
        health,
        good=0,
        bad=health.bad + 1,
        bad_since=now if first else health.bad_since,
        bad_result=probe.result,
        bad_what=what,
        bad_mixed=not first and (health.bad_mixed or what != health.bad_what),
    )
    if probe.result is ProbeResult.REFUSED:
        known = replace(known, strikes=0, readmit_at=now, by_requests=False, fresh=True)
    match health.state:
        case BackendState.UNKNOWN if probe.result is ProbeResult.REFUSED:
            return _enter(known, BackendState.EJECTED, now=now, reason=f"ejected: {what}")
        case BackendState.UNKNOWN | BackendState.SERVING if known.bad >= policy.fall:
            return _enter(known, BackendState.EJECTED, now=now, reason=_why_ejected(known, now))
        case BackendState.EJECTED if what != health.bad_what:
            return Step(replace(known, reason=f"ejected: {what}"))
        case _:
            return Step(known)


def _why_ejected(health: Health, now: float) -> str:
    span_s = now - health.bad_since
    if health.bad == 1:
        return f"ejected: {health.bad_what}"
    if health.bad_mixed:
        return f"ejected: {health.bad} bad probes in {span_s:.1f} s, the last: {health.bad_what}"
    return f"ejected: {health.bad_what} {health.bad} times in {span_s:.1f} s"


def _request_succeeded(health: Health, count: int, *, policy: HealthPolicy, now: float) -> Health:
    if health.state is not BackendState.SERVING:
        return health
    known = replace(health, tally=health.tally.add(now, policy.window_s, good=count), proven=True)
    if known.kept:
        known = _calmed(known, policy=policy, now=now)
    if known.bad_result is ProbeResult.TIMEOUT:  # slow to answer probes but answering requests: busy, not ill
        return replace(known, bad=0, bad_result=None, bad_what="", bad_mixed=False)
    return known


def _calmed(health: Health, *, policy: HealthPolicy, now: float) -> Health:
    """Without the reason for which it was only kept, once that is over."""
    tally = health.tally.add(now, policy.window_s)
    if _too_many(tally, policy):
        return health
    return replace(health, tally=tally, kept=False, reason="serving: requests end well again")


def _too_many(tally: Tally, policy: HealthPolicy) -> bool:
    return tally.all_failed >= policy.passive_fall and 2 * tally.all_failed >= tally.all_ended


def _request_failed(
    health: Health, failure: RequestFailed, *, policy: HealthPolicy, now: float, may_eject: bool
) -> HealthStep:
    if failure.code == ENGINE_DEAD:
        return Step(health, (ProbeNow(),))
    late = failure.at < health.since  # news of a time before this state: it was counted then, or it is another process
    if not speaks_against(failure.code) or health.state is not BackendState.SERVING or late:
        return Step(health)
    tally = health.tally.add(now, policy.window_s, failed=1)
    known = replace(health, tally=tally)
    on_probation = health.strikes > 0 and not health.proven
    probe = (ProbeNow(),) if failure.code in LOST_CONNECTION else ()
    if not (on_probation or _too_many(tally, policy)):
        return Step(known, probe)
    found = f"{tally.all_failed} of the last {tally.all_ended} requests failed, the last"
    if on_probation:
        found = "the first request after the pause failed"
    if not may_eject:
        reason = f"serving although {found} with {failure.code}: no more of the pool may be ejected for that"
        return Step(replace(known, kept=True, reason=reason), probe if health.kept else (*probe, Kept()), reason)
    delay_s = min(policy.readmit_max_s, policy.readmit_s * 2.0 ** min(health.strikes, 30))
    known = replace(known, strikes=health.strikes + 1, readmit_at=now + delay_s, good=0)
    reason = f"ejected for {delay_s:g} s: {found} with {failure.code}"
    step_ = _enter(known, BackendState.EJECTED, now=now, reason=reason)
    return Step(replace(step_.state, by_requests=True), (*step_.actions, ProbeNow()), reason)


def _drain_lifted(health: Health, now: float) -> HealthStep:
    if health.state is not BackendState.DRAINING:
        return Step(health, reason=f"not draining but {health.state}")
    if health.good > 0:
        return _enter(health, BackendState.SERVING, now=now, reason="serving: the drain was lifted")
    reason = f"ejected: {health.bad_what or 'not probed yet'} when the drain was lifted"
    return _enter(health, BackendState.EJECTED, now=now, reason=reason)


def _enter(health: Health, state: BackendState, *, now: float, reason: str) -> HealthStep:
    serves = state is BackendState.SERVING
    entered = replace(
        health,
        state=state,
        since=now,
        reason=reason,
        tally=Tally(started=now),
        proven=False,
        by_requests=False,
        kept=False,
        serving_since=now if serves and health.fresh else health.serving_since,
        fresh=not serves and (health.fresh or state is BackendState.EJECTED),
    )
    return Step(entered, (Enter(state=state, reason=reason),), reason)
