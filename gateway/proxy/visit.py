"""One request on its way through the stations: what is known of it so far.

Owner: the pipeline; each station fills in its part, settle turns it into the record.  Instants are monotonic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.core.admission.keys import Key
from gateway.core.admission.quota import Reserve
from gateway.core.admission.window import Step
from gateway.core.request.body import ParsedBody
from gateway.core.request.fingerprint import fingerprint
from gateway.core.routing.endpoints import Endpoint
from gateway.core.routing.snapshot import BackendView, Snapshot
from gateway.core.stream.delivery.mode import Delivery, ThinkTags
from gateway.core.stream.summary import Ending, RequestShape
from gateway.errors import GatewayError
from gateway.proxy.forward import Exchange
from gateway.proxy.side import SideStream

if TYPE_CHECKING:
    from gateway.proxy.comments import Comments

BEGUN_STATUS: Final = 200
"""Of a stream that began before a backend answered."""

KEPT_BODY_BYTES = 16 * 1024
"""Bodies up to this are kept to the end, in case that the backend dies of them; of longer ones the fingerprint is."""


class Visit:
    """Mutable record of one request; see the module."""

    method = ""
    keep_alive = True
    http_1_1 = True
    endpoint: Endpoint | None = None
    thing = ""  # the id in its path
    query = b""  # what of the query goes upstream
    body: ParsedBody | None = None  # let go once nothing can be tried again
    fingerprint = ""
    session: int | None = None
    shape: RequestShape | None = None
    metrics = "none"
    asked_delivery: Delivery | None = None
    delivery = Delivery.PASS
    tags: ThinkTags | None = None
    side: SideStream | None = None
    key_id = ""
    extra_headers = b""
    cors = b""
    model = ""
    pool = ""
    key: Key | None = None
    entered: Step | None = None  # when its key's quotas let it in
    background = False  # the engine goes on with it when its answer has ended
    reserves = 0  # tokens that are set aside for it, as far as its key's are limited
    reserved: Reserve | None = None
    priority = 0
    deadline: float | None = None  # by which it must have left the queue
    held_until: float | None = None  # how long it waits for backends that are expected back
    charged: float | None = None  # tokens that its flow was charged when it was served
    backend: BackendView | None = None
    only: BackendView | None = None  # no other one can answer
    named: Callable[[str], None] | None = None  # is told the id of a response
    made = ""  # that id, or the one that the engine was told to take
    comments: Comments | None = None
    exchange: Exchange | None = None
    reached = False  # a backend was connected to
    attempts = 0
    injected = False
    alone = False
    queued: float | None = None
    admitted: float | None = None
    upload_s = 0.0
    request_bytes = 0
    response_bytes = 0
    status = 0
    ending = Ending.REJECTED
    error: GatewayError | None = None

    def __init__(self, *, accepted: float, accepted_wall: float, snapshot: Snapshot, request_id: str) -> None:
        self.accepted = accepted
        self.accepted_wall = accepted_wall
        self.snapshot = snapshot
        self.request_id = request_id
        self.tried: list[str] = []

    @property
    def queue_s(self) -> float | None:
        """Time spent waiting to be admitted; the client's upload comes before it and is not part of it."""
        return None if self.admitted is None or self.queued is None else self.admitted - self.queued

    @property
    def gateway_s(self) -> float | None:
        """The gateway's own share: accepted to sent, less queue and upload."""
        sent_at = self.exchange.sent_at if self.exchange is not None else None
        return None if sent_at is None else max(0.0, sent_at - self.accepted - (self.queue_s or 0.0) - self.upload_s)

    @property
    def begun(self) -> bool:
        """Whether the client has a head already that is no backend's."""
        return self.comments is not None and self.comments.begun

    def begin_attempt(self, backend: BackendView) -> BackendView:
        """It goes to ``backend``; what an attempt before this one left is no more."""
        self.backend = backend
        self.attempts += 1
        self.exchange, self.status = None, BEGUN_STATUS if self.begun else 0
        return backend

    def known_by(self) -> str:
        """The request's fingerprint, "" where its body is gone without one."""
        if not self.fingerprint and self.body is not None:
            self.fingerprint = fingerprint(self.body)
        return self.fingerprint

    def let_body_go(self) -> None:
        """The request is tried nowhere else: a long prompt need not be kept."""
        if not self.snapshot.policy.poison.deaths:
            self.body = None
        elif self.request_bytes > KEPT_BODY_BYTES:
            self.known_by()
            self.body = None

    def forget(self) -> None:
        """Let go of what refers back to the visit, once it is settled: its bodies must not wait for the collector."""
        exchange, self.exchange, self.error, self.named = self.exchange, None, None, None
        if self.comments is not None:
            self.comments.stop()
            self.comments = None
        if exchange is not None:
            exchange.forget()
