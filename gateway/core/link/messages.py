"""What workers and control say to each other: typed msgpack messages, the same with one worker or many.

The only coupling between the request flow and everything else.  Versioned by :data:`PROTOCOL`: control refuses a
worker that speaks another (a worker of the old release ends after an upgrade anyway).  Monotonic times are
``CLOCK_MONOTONIC``, which all processes of one host share.  No text of a prompt or an answer, and no key, may ever
stand in a message; of keys there are digests.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from gateway.core.admission.keys import Key
from gateway.core.admission.ledger import Claim
from gateway.core.admission.usage import KeyUsage
from gateway.core.routing.curve import Curve
from gateway.core.routing.snapshot import Snapshot
from gateway.core.stream.summary import Ending, Outcome, StreamSummary

PROTOCOL: Final = 1


class RequestRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One settled request: the wide event, the history row and the live feed are all made from it.

    Durations are seconds from ``accepted``, None where the instant never came.  ``queue_s`` accepted -> admitted;
    ``upload_s`` time spent receiving the body; ``sent_s``, ``headers_s``, ``ttft_s``, ``ttfv_s``, ``last_token_s``,
    ``total_s`` are that instant less accepted; ``gateway_s`` is our own share: accepted -> sent less queue and upload;
    ``hold_max_s`` the longest that bytes were held back for an event to become whole; ``blocked_s`` how long the
    client did not take bytes.  ``alone``: no other request of this worker was in flight on the backend at any time
    between sent and ended.  ``error_reason`` is the gateway's own sentence, where the fault is not the client's (those
    could quote it).  ``injected``: usage was asked for on the client's behalf.
    """

    request_id: str
    slot: int
    accepted_wall: float
    endpoint: str
    method: str
    status: int
    outcome: Outcome
    ending: Ending
    stream: bool = False
    model: str = ""
    pool: str = ""
    backend: str = ""
    profile: str = ""
    key_id: str = ""
    error_code: str = ""
    error_reason: str = ""
    attempts: int = 0
    injected: bool = False
    alone: bool = False
    request_bytes: int = 0
    response_bytes: int = 0
    queue_s: float | None = None
    upload_s: float | None = None
    sent_s: float | None = None
    headers_s: float | None = None
    ttft_s: float | None = None
    ttfv_s: float | None = None
    last_token_s: float | None = None
    total_s: float = 0.0
    gateway_s: float | None = None
    hold_max_s: float = 0.0
    blocked_s: float = 0.0
    summary: StreamSummary | None = None


class BackendFailure(Struct, frozen=True, kw_only=True):
    """Passive health: an attempt at ``backend`` failed (``code`` of the error) at monotonic ``at``.

    ``fingerprint`` of the request where the backend may have died of it.  ``code`` "": it ended well, which is told of
    fingerprints that are under suspicion.
    """

    backend: str
    code: str
    at: float
    fingerprint: str = ""


# --- worker -> control ------------------------------------------------------------------------------------------


class Hello(Struct, frozen=True, tag="hello", kw_only=True):
    """First message of a worker."""

    protocol: int
    slot: int
    pid: int
    started_wall: float


class Heartbeat(Struct, frozen=True, tag="heartbeat", kw_only=True):
    """Every ``HEARTBEAT_S``: authoritative counters since the worker started.

    ``outcomes`` maps "endpoint|model|backend|outcome|status" to a count (model from the closed set of names that the
    snapshot serves, else "other"); ``in_flight`` per backend; ``holding`` is every admitted, unsettled request;
    ``share``: the share of the limit that is in force, None while none was ever told; sent at once when it changes, for
    control waits for it.  ``dropped`` counts records lost because control was slow or away.
    ``claims``: of every limit that workers share; ``flows``: pool -> key id -> requests that wait there and those that
    are being served; ``refusals`` maps "pool|reason" to a count of requests that were not let in.
    ``waits``: pool -> since when (monotonic) the one waits that has waited longest; ``stop_by``: when (monotonic) what
    is open is ended, None while the gateway is not being stopped.
    """

    slot: int
    sent_at: float
    generation: int
    in_flight: dict[str, int]
    holding: int
    connections: int
    outcomes: dict[str, int]
    share: int | None = None
    dropped: int = 0
    tap_failures: int = 0
    claims: dict[str, Claim] = field(default_factory=dict)
    flows: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    stop_by: float | None = None


class Settled(Struct, frozen=True, tag="settled", kw_only=True):
    """A batch of what happened, in order; best effort."""

    slot: int
    records: list[RequestRecord]
    failures: list[BackendFailure] = field(default_factory=list)


class DrainAck(Struct, frozen=True, tag="drain_ack", kw_only=True):
    """Under snapshot ``generation`` this worker sends ``backend`` nothing new, and ``in_flight`` are still open."""

    slot: int
    backend: str
    generation: int
    in_flight: int


class AskUsage(Struct, frozen=True, tag="ask_usage", kw_only=True):
    """A client wants to know what its key has used; answered with :class:`UsageTold` of the same number."""

    number: int
    key_id: str


# --- control -> worker ------------------------------------------------------------------------------------------


class NewSnapshot(Struct, frozen=True, tag="snapshot", kw_only=True):
    """Replace the snapshot."""

    snapshot: Snapshot


class Shares(Struct, frozen=True, tag="shares", kw_only=True):
    """This worker's share of the limits, and the others' in-flight per backend (for least in-flight).

    ``limits``: its shares of further limits, those that have changed.  ``parts``: pool -> key id -> which part of the
    key's weight counts at this worker, where it is not all of it.  ``spent``: of limits of the day, what workers that
    are no more have used, where the limit is the only worker's own affair.
    """

    in_flight_limit: int
    others_in_flight: dict[str, int]
    limits: dict[str, int] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)


class NewKeys(Struct, frozen=True, tag="keys", kw_only=True):
    """Replace the keys of clients, by their digests."""

    keys: tuple[Key, ...]


class UsageTold(Struct, frozen=True, tag="usage", kw_only=True):
    """The answer to :class:`AskUsage`."""

    number: int
    usage: KeyUsage


class Pulse(Struct, frozen=True, tag="pulse", kw_only=True):
    """The engine's token counter as read at monotonic ``read_at``; proves life while a stream is silent."""

    backend: str
    generation_tokens: float
    read_at: float


class Pace(Struct, frozen=True, tag="pace", kw_only=True):
    """What was measured of a backend whose pool routes by it: how fast a stream is among so many.

    ``strangers`` of these streams are not this gateway's.  ``old``: nothing was measured for long, so that one request
    should go there to see; said again from time to time.
    """

    backend: str
    curve: Curve
    strangers: int = 0
    old: bool = False


class Quarantine(Struct, frozen=True, tag="quarantine", kw_only=True):
    """Requests that engines may die of, by fingerprint; replaces what was told before.

    ``suspects`` are let in, and their good end is to be told; those in ``until`` are refused until that monotonic time.
    """

    suspects: tuple[str, ...]
    until: dict[str, float]


class Refused(Struct, frozen=True, tag="refused", kw_only=True):
    """Control will not talk to this worker; the connection closes after it."""

    reason: str


WorkerMessage = Hello | Heartbeat | Settled | DrainAck | AskUsage
ControlMessage = NewSnapshot | NewKeys | Shares | Pulse | Pace | Quarantine | UsageTold | Refused

HEARTBEAT_S: Final = 0.5
SHARES_S: Final = 0.1
