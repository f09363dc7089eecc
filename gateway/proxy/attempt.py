"""One attempt at a backend, before and after: the request's bytes, and what its end says about trying elsewhere.

Station forward.  No state and no I/O: reads a visit and an exchange that has ended.  Whether there is another backend
is the pipeline's to ask.
"""

from __future__ import annotations

import os

from gateway.core.admission.keys import salt_of
from gateway.core.request.body import JSON, ParsedBody, emit_body, given_salt, salted
from gateway.core.request.response_id import CHANCE_BYTES, named, response_id
from gateway.core.routing.credentials import bearer_line
from gateway.core.routing.endpoints import Endpoint
from gateway.core.routing.retry import Attempt, aborted_before_a_token
from gateway.core.stream.summary import Dialect, Ending
from gateway.core.stream.tap import summarise_body
from gateway.errors import GatewayFault
from gateway.proxy.answer import AnswerRelay
from gateway.proxy.forward import Exchange
from gateway.proxy.upstream import Target
from gateway.proxy.visit import Visit

FIRST_ERROR_STATUS = 400


def request_bytes(visit: Visit, target: Target, endpoint: Endpoint) -> bytes:
    """The whole request for the backend: its path is the map's own, its credentials are the backend's."""
    if visit.body is None or visit.backend is None:
        raise GatewayFault("a request was forwarded without its body")
    body = emit_body(_marked(visit, visit.body, endpoint), inject_usage=visit.injected)
    key = os.environ.get(visit.backend.api_key_env, "") if visit.backend.api_key_env else ""
    if not visit.body.media_type:
        return b"%b %b HTTP/1.1\r\nHost: %b\r\n%bX-Request-Id: %b\r\n%b%b\r\n" % (
            visit.method.encode("ascii"),  # one of the endpoint's
            endpoint.target(visit.thing, visit.query),
            target.host_header,
            b"" if visit.method == "GET" else b"Content-Length: 0\r\n",
            visit.request_id.encode("ascii"),
            bearer_line(key),
            visit.extra_headers,
        )
    return (
        b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nX-Request-Id: %b\r\n%b%b\r\n%b"
    ) % (
        endpoint.upstream_path,
        target.host_header,
        visit.body.media_type,
        len(body),
        visit.request_id.encode("ascii"),
        bearer_line(key),
        visit.extra_headers,
        body,
    )


def _marked(visit: Visit, body: ParsedBody, endpoint: Endpoint) -> ParsedBody:
    """``body`` with what tells its key's prompts and responses from those of other keys."""
    key = visit.key
    if key is not None and key.cache_salt:
        body = salted(body, salt_of(key, given=given_salt(body)))
    if key is not None and endpoint.dialect is Dialect.RESPONSES:
        visit.made = response_id(key.id, chance=os.urandom(CHANCE_BYTES))
        body = named(body, visit.made)
    return body


def is_json(exchange: Exchange) -> bool:
    """Whether the answer says that it is JSON: of anything else only the framing can be judged."""
    return exchange.head is not None and exchange.head.content_type.startswith(JSON)


def held_answer(exchange: Exchange) -> AnswerRelay | None:
    """An answer that is no stream and of which the client has not had a byte."""
    relay = exchange.relay
    return relay if isinstance(relay, AnswerRelay) and relay.unsent else None


def attempt_of(visit: Visit, exchange: Exchange, *, dialect: Dialect, stopping: bool) -> Attempt:
    """How the attempt ended, with an error status told from a whole answer."""
    relay, held = exchange.relay, held_answer(exchange)
    status = exchange.head.status if exchange.head is not None else 0
    needed = stopping or status >= FIRST_ERROR_STATUS or (held is not None and not held.delimited)
    answer = (held.copy() or b"") if held is not None and needed else b""
    ending = visit.ending
    if ending is Ending.COMPLETE and status >= FIRST_ERROR_STATUS:
        ending = Ending.BAD_STATUS
    aborted = relay is not None and relay.zero_token_abort
    if answer and status < FIRST_ERROR_STATUS and visit.shape is not None and is_json(exchange):
        summary = summarise_body(dialect, answer, visit.shape)
        aborted = stopping and aborted_before_a_token(summary)
        if summary.bad_events and held is not None and not held.delimited:
            ending = Ending.EOF  # no length was stated, and what came is no whole JSON
    return Attempt(
        ending=ending,
        status=status,
        answer=answer,
        sent_to_client=relay is not None and not relay.unsent,
        stopping=stopping,
        zero_token_abort=aborted,
    )
