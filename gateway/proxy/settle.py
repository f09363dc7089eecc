"""Station settle: every accepted request ends here, whatever its end, in exactly one record.

Counts the outcome (authoritative, cumulative, sent with every heartbeat) and offers the record to the link (best
effort).  Never awaits, never raises for what a request did.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from gateway.core.link.messages import BackendFailure, RequestRecord
from gateway.core.stream.outcome import decide_outcome
from gateway.core.stream.summary import Ending, Flag, StreamSummary
from gateway.core.stream.tap import summarise_body
from gateway.errors import Fault
from gateway.proxy.attempt import is_json
from gateway.proxy.relay import StreamRelay
from gateway.proxy.visit import Visit

OTHER = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})
NAME = re.compile(r"[A-Za-z0-9._:/@+\-]{1,256}")
"""What a model that nobody serves may be called to be recorded: clients send anything, a prompt by mistake too."""

FAILURES = frozenset(
    {Ending.EOF, Ending.RESET, Ending.BAD_FRAMING, Ending.NOT_SSE, Ending.OVERSIZE, Ending.KEY_REFUSED}
)
TIMEOUTS = frozenset({Ending.FIRST_EVENT_TIMEOUT, Ending.STALL_TIMEOUT})

log = logging.getLogger("gateway.settle")


class Settler:
    """Owner of this worker's outcome counters."""

    def __init__(
        self,
        *,
        slot: int,
        clock: Callable[[], float],
        offer: Callable[[RequestRecord], None],
        report_failure: Callable[[BackendFailure], None],
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        self.tap_failures = 0
        self._slot = slot
        self._clock = clock
        self._offer = offer
        self._report_failure = report_failure

    def record(self, visit: Visit) -> RequestRecord:
        """The record of ``visit``, to be :meth:`offered <offer>` once."""
        try:
            summary = _summary(visit)
        except Exception:  # whatever measuring does, the request must have its record
            log.exception("request.unmeasured", extra={"request_id": visit.request_id})
            summary = None
        return self._record(visit, summary)

    def offer(self, record: RequestRecord) -> None:
        """Count the outcome and hand the record over: nothing of the request is to come any more."""
        if record.summary is not None and Flag.TAP_DISABLED in record.summary.flags:
            self.tap_failures += 1
        model = record.model if record.pool else OTHER  # clients must not be able to invent labels
        key = f"{record.endpoint}|{model}|{record.backend}|{record.outcome}|{record.status}"
        self.outcomes[key] += 1
        self._offer(record)

    def attempt_failed(self, backend: str, code: str, *, fingerprint: str = "") -> None:
        """Passive health: an attempt at ``backend`` came to nothing; ``fingerprint`` where it may have died of it."""
        self._report_failure(BackendFailure(backend=backend, code=code, at=self._clock(), fingerprint=fingerprint))

    def _record(self, visit: Visit, summary: StreamSummary | None) -> RequestRecord:
        now = self._clock()
        exchange, backend, shape = visit.exchange, visit.backend, visit.shape
        relay = exchange.relay if exchange is not None else None
        sent_at = exchange.sent_at if exchange is not None else None
        status = exchange.head.status if exchange is not None and exchange.head is not None else 0
        stream = isinstance(relay, StreamRelay) or (relay is None and shape is not None and shape.stream)

        def since(instant: float | None) -> float | None:
            return None if instant is None else instant - visit.accepted

        return RequestRecord(
            request_id=visit.request_id,
            slot=self._slot,
            accepted_wall=visit.accepted_wall,
            endpoint=visit.endpoint.name if visit.endpoint is not None else OTHER,
            method=visit.method if visit.method in METHODS else OTHER,
            status=visit.status,
            outcome=decide_outcome(summary, visit.ending, stream=stream, status=status),
            ending=visit.ending,
            stream=stream,
            model=visit.model if visit.pool or NAME.fullmatch(visit.model) else "",
            pool=visit.pool,
            key_id=visit.key_id,
            backend=backend.name if backend is not None else "",
            profile=backend.profile if backend is not None else "",
            error_code=visit.error.code if visit.error is not None else "",
            error_reason=visit.error.message
            if visit.error is not None and visit.error.fault is not Fault.CLIENT
            else "",
            attempts=visit.attempts,
            injected=visit.injected,
            alone=visit.alone,
            request_bytes=visit.request_bytes,
            response_bytes=visit.response_bytes + (0 if relay is None else relay.response_bytes),
            queue_s=visit.queue_s,
            upload_s=visit.upload_s if shape is not None else None,
            sent_s=since(sent_at),
            headers_s=since(exchange.headers_at if exchange is not None else None),
            ttft_s=since(summary.first_token if summary is not None else None),
            ttfv_s=since(summary.first_visible if summary is not None else None),
            last_token_s=since(summary.last_token if summary is not None else None),
            total_s=now - visit.accepted,
            gateway_s=visit.gateway_s,
            hold_max_s=relay.hold_max_s if relay is not None else 0.0,
            blocked_s=exchange.blocked_s if exchange is not None else 0.0,
            summary=summary,
        )


def _summary(visit: Visit) -> StreamSummary | None:
    exchange = visit.exchange
    if exchange is None or exchange.relay is None or exchange.head is None or visit.shape is None:
        return None
    if isinstance(exchange.relay, StreamRelay):
        summary = exchange.relay.summary()
        if exchange.blocked_s > 0:
            summary = replace(summary, flags=(*summary.flags, Flag.CLIENT_BLOCKED))
        return summary
    dialect = visit.endpoint.dialect if visit.endpoint is not None else None
    body = exchange.relay.copy()
    if body is None or dialect is None or exchange.head.status >= 300 or not is_json(exchange):
        return None
    return summarise_body(dialect, body, visit.shape, tags=visit.tags)
