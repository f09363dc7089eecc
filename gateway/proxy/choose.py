"""Station relay: which relay an answer gets, decided once, when its head has come.

Everything that varies per request is fixed here: the edit of the stream, the head that the client sees, whether the
client understands chunks.  No flow asks again later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from gateway.core.routing.backpressure import BUSY_STATUSES, RETRY_AFTER
from gateway.core.routing.endpoints import JSON_ANSWER
from gateway.core.routing.headers import downstream_headers
from gateway.core.routing.snapshot import BackendView
from gateway.core.stream.delivery.mode import Delivery
from gateway.core.stream.edit import Edit, ReportAsEvent, Untouched, UsageStripped, with_report_in_usage
from gateway.core.stream.envelope import relayed_error_event
from gateway.core.stream.http1 import TERMINATOR, ResponseHead, body_of, chunk
from gateway.core.stream.pace import PaceReport, pace_report
from gateway.core.stream.summary import Dialect, Ending, RequestShape, StreamSummary
from gateway.core.stream.tap import Tap, summarise_body
from gateway.core.stream.typed_report import report_in_usage
from gateway.proxy import envelope
from gateway.proxy.answer import AnswerRelay
from gateway.proxy.attempt import FIRST_ERROR_STATUS
from gateway.proxy.deliver import body_edit, stream_edit
from gateway.proxy.forward import Exchange, Relay
from gateway.proxy.relay import StreamRelay
from gateway.proxy.side import SideStream
from gateway.proxy.visit import Visit
from gateway.proxy.wire import ClientWire

_UNTOUCHED: Final = Untouched()

SUCCESS: Final = range(200, 300)
KEY_REFUSED: Final = frozenset({401, 403})


class RelayChooser:
    """Chooses for one request at one backend; called by the exchange."""

    __slots__ = ("_backend", "_clock", "_dialect", "_free_in_s", "_shape", "_stopping", "_visit", "_wire")

    def __init__(
        self,
        visit: Visit,
        wire: ClientWire,
        *,
        backend: BackendView,
        stopping: Callable[[], bool],
        free_in_s: Callable[[], float],
        dialect: Dialect,
        clock: Callable[[], float],
    ) -> None:
        """``free_in_s``: when a backend may take more, for a client whose request none of them took."""
        self._visit = visit
        self._wire = wire
        self._backend = backend
        self._dialect = dialect
        self._stopping = stopping
        self._free_in_s = free_in_s
        self._shape = visit.shape or RequestShape(stream=False)
        self._clock = clock

    def __call__(self, exchange: Exchange, head: ResponseHead) -> Relay | Ending:
        """The relay for an answer with ``head``, or the ending when it is not an answer to what was asked."""
        if head.status in KEY_REFUSED:
            return Ending.KEY_REFUSED  # the client's own key never goes upstream: this is about ours
        if head.status not in SUCCESS:
            if head.status < FIRST_ERROR_STATUS:
                return Ending.NOT_SSE  # an engine never redirects, and clients are not told of inside addresses
            return self._answer(exchange, head, edit=None)
        endpoint = self._visit.endpoint
        if head.event_stream:
            return self._stream(exchange, head) if endpoint is None or endpoint.streams else Ending.NOT_SSE
        fits = head.content_type.startswith(JSON_ANSWER if endpoint is None else endpoint.answers)
        if self._shape.stream or not fits:
            return Ending.NOT_SSE
        edit = self._report_in_body if self._visit.metrics == "usage" else None
        return self._answer(exchange, head, edit=body_edit(self._visit, self._dialect, after=edit))

    def _stream(self, exchange: Exchange, head: ResponseHead) -> Relay:
        visit, limits = self._visit, self._visit.snapshot.policy.limits
        client_chunked = visit.http_1_1
        visit.status = head.status
        visit.keep_alive = visit.keep_alive and client_chunked
        stopping = self._stopping()
        if not stopping:
            visit.let_body_go()
        return StreamRelay(
            exchange=exchange,
            wire=self._wire,
            head=b"" if visit.begun else self._head(head, length=None, chunked=client_chunked),
            body=body_of(head),
            dialect=self._dialect,
            edit=stream_edit(visit, self._dialect, after=self._edit()),
            tap=Tap(self._dialect, self._shape, max_event_bytes=limits.event_bytes, tags=visit.tags, on_id=visit.named),
            report=self._report,
            client_chunked=client_chunked,
            hold_bytes=limits.hold_bytes,
            stopping=stopping,
            clock=self._clock,
        )

    def _answer(self, exchange: Exchange, head: ResponseHead, *, edit: Callable[[bytes], bytes] | None) -> Relay:
        visit, limits = self._visit, self._visit.snapshot.policy.limits
        client_chunked = visit.http_1_1
        begun = visit.begun
        if not begun:
            visit.status = head.status
            visit.keep_alive = visit.keep_alive and (client_chunked or head.length is not None)

        def make_head(length: int | None) -> bytes:
            return b"" if begun else self._head(head, length=length, chunked=client_chunked)

        def tell(body: bytes) -> bytes:
            events = relayed_error_event(body, status=head.status, dialect=self._dialect)
            return chunk(events) + TERMINATOR if client_chunked else events

        return AnswerRelay(
            exchange=exchange,
            wire=self._wire,
            make_head=make_head,
            body=body_of(head),
            length=head.length,
            edit=tell if begun else edit,
            must_edit=begun or (edit is not None and visit.delivery is not Delivery.PASS),
            client_chunked=client_chunked,
            hold_bytes=limits.answer_hold_bytes,
            copy_bytes=limits.answer_tap_bytes,
            chunk_bytes=limits.hold_bytes,
            clock=self._clock,
        )

    def _edit(self) -> Edit:
        match self._visit.metrics:
            case "usage":
                return report_in_usage(self._dialect)
            case "event":
                return ReportAsEvent(UsageStripped() if self._visit.injected else _UNTOUCHED)
            case _:
                return UsageStripped() if self._visit.injected else _UNTOUCHED

    def _head(self, head: ResponseHead, *, length: int | None, chunked: bool) -> bytes:
        visit = self._visit
        busy = head.status in BUSY_STATUSES
        lines = (
            (self._busy_headers(head) if busy else downstream_headers(head.headers))
            + own_headers(visit, self._backend)
            + envelope.connection_line(keep_alive=visit.keep_alive, http_1_1=visit.http_1_1)
        )
        if visit.side is not None and head.status in SUCCESS:
            lines += side_line(visit.side)
        if visit.metrics != "none":
            lines += self._server_timing()
        return envelope.head(head.status, head.reason, headers=lines, length=length, chunked=chunked)

    def _busy_headers(self, head: ResponseHead) -> bytes:
        """Of a backend that is busy, its headers with the time after which any backend may be free."""
        kept = downstream_headers((name, value) for name, value in head.headers if name != RETRY_AFTER)
        return kept + b"Retry-After: %d\r\n" % max(1, math.ceil(self._free_in_s()))

    def _server_timing(self) -> bytes:
        """What is known when the head goes out: our own share and the backend's time to its first byte."""
        visit, exchange = self._visit, self._visit.exchange
        entries = [b"queue;dur=%.1f" % (1e3 * (visit.queue_s or 0.0))]
        if exchange is not None and exchange.sent_at is not None:
            entries.append(b"gateway;dur=%.1f" % (1e3 * (visit.gateway_s or 0.0)))
            entries.append(b"backend;dur=%.1f" % (1e3 * (self._clock() - exchange.sent_at)))
        return b"Server-Timing: " + b", ".join(entries) + b"\r\n"

    def _report(self, summary: StreamSummary) -> PaceReport:
        visit = self._visit
        return pace_report(summary, request_id=visit.request_id, accepted=visit.accepted, queue_s=visit.queue_s)

    def _report_in_body(self, body: bytes) -> bytes:
        return with_report_in_usage(
            body, self._report(summarise_body(self._dialect, body, self._shape, tags=self._visit.tags))
        )


def side_line(side: SideStream) -> bytes:
    """The header that says where the reasoning of an answer is read."""
    return b"X-Gateway-Reasoning-Stream: /v1/reasoning/%b\r\n" % side.announce()


def own_headers(visit: Visit, backend: BackendView | None) -> bytes:
    """The headers that the gateway adds to every answer."""
    policy = visit.snapshot.policy.headers
    lines = b"X-Request-Id: %b\r\n%b" % (visit.request_id.encode("ascii"), visit.cors)
    if backend is not None and policy.backend_name:
        lines += b"X-Gateway-Backend: %b\r\n" % backend.name.encode("ascii")
    if backend is not None and backend.profile and policy.profile_name:
        lines += b"X-Gateway-Profile: %b\r\n" % backend.profile.encode("ascii")
    return lines
