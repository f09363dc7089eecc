"""One request on its way through the stations: what is known of it so far.

Owner: the pipeline; each station fills in its part, settle turns it into the record.  Instants are monotonic.
"""

from __future__ import annotations

from gateway.core.admission.keys import Key
from gateway.core.request.body import ParsedBody
from gateway.core.routing.endpoints import Endpoint
from gateway.core.routing.snapshot import BackendView, Snapshot
from gateway.core.stream.delivery.mode import Delivery, ThinkTags
from gateway.core.stream.summary import Ending, RequestShape
from gateway.errors import GatewayError
from gateway.proxy.forward import Exchange
from gateway.proxy.side import SideStream


class Visit:
    """Mutable record of one request; see the module."""

    __slots__ = (
        "accepted",
        "accepted_wall",
        "admitted",
        "alone",
        "asked_delivery",
        "attempts",
        "backend",
        "body",
        "charged",
        "cors",
        "deadline",
        "delivery",
        "ending",
        "endpoint",
        "error",
        "exchange",
        "extra_headers",
        "held_until",
        "http_1_1",
        "injected",
        "keep_alive",
        "key",
        "key_id",
        "method",
        "metrics",
        "model",
        "pool",
        "priority",
        "queued",
        "request_bytes",
        "request_id",
        "response_bytes",
        "shape",
        "side",
        "side_id",
        "snapshot",
        "status",
        "tags",
        "tried",
        "upload_s",
    )

    def __init__(self, *, accepted: float, accepted_wall: float, snapshot: Snapshot, request_id: str) -> None:
        self.accepted = accepted
        self.accepted_wall = accepted_wall
        self.snapshot = snapshot
        self.request_id = request_id
        self.method = ""
        self.keep_alive = True
        self.http_1_1 = True
        self.endpoint: Endpoint | None = None
        self.body: ParsedBody | None = None  # let go once nothing can be tried again
        self.shape: RequestShape | None = None
        self.metrics = "none"
        self.asked_delivery: Delivery | None = None
        self.delivery = Delivery.PASS
        self.tags: ThinkTags | None = None
        self.side: SideStream | None = None
        self.side_id = ""  # of the side stream that is asked for
        self.key_id = ""
        self.extra_headers = b""
        self.cors = b""
        self.model = ""
        self.pool = ""
        self.key: Key | None = None
        self.priority = 0
        self.deadline: float | None = None  # by which it must have left the queue
        self.held_until: float | None = None  # how long it waits for backends that are expected back
        self.charged: float | None = None  # tokens that its flow was charged when it was served
        self.backend: BackendView | None = None
        self.exchange: Exchange | None = None
        self.attempts = 0
        self.tried: list[str] = []
        self.injected = False
        self.alone = False
        self.queued: float | None = None
        self.admitted: float | None = None
        self.upload_s = 0.0
        self.request_bytes = 0
        self.response_bytes = 0
        self.status = 0
        self.ending = Ending.REJECTED
        self.error: GatewayError | None = None

    @property
    def queue_s(self) -> float | None:
        """Time spent waiting to be admitted; the client's upload comes before it and is not part of it."""
        return None if self.admitted is None or self.queued is None else self.admitted - self.queued

    @property
    def gateway_s(self) -> float | None:
        """The gateway's own share: accepted to sent, less queue and upload."""
        sent_at = self.exchange.sent_at if self.exchange is not None else None
        return None if sent_at is None else max(0.0, sent_at - self.accepted - (self.queue_s or 0.0) - self.upload_s)

    def forget(self) -> None:
        """Let go of what refers back to the visit, once it is settled: its bodies must not wait for the collector."""
        exchange, self.exchange, self.error = self.exchange, None, None
        if exchange is not None:
            exchange.forget()
