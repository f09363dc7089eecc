"""Station admit: may this request come in, and what does it ask for.

Everything that can be refused is refused here, before a backend hears of it: unknown paths, wrong verbs, bodies that
are too long, too slow or no JSON object, more requests than the gateway may hold.  Must not choose a backend.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from msgspec import structs

from gateway.core.request.body import ParsedBody, no_body, parse_body
from gateway.core.request.form import boundary_of, parse_form
from gateway.core.request.parameters import check_fields, check_parameters
from gateway.core.routing.cors import answer_lines, preflight_lines
from gateway.core.routing.endpoints import Endpoint, Serves, Takes, checked_query, locate, nearest
from gateway.core.routing.headers import client_request_id
from gateway.core.routing.parameters import ParameterPolicy
from gateway.core.routing.snapshot import LimitPolicy
from gateway.core.stream.summary import Dialect
from gateway.errors import (
    BadRequest,
    BodyTimeout,
    BodyTooLarge,
    ExpectationFailed,
    MethodNotAllowed,
    UnknownEndpoint,
    UnsupportedEncoding,
)
from gateway.proxy.deliver import asked_delivery
from gateway.proxy.intake import FREE_BYTES, Intake
from gateway.proxy.visit import Visit
from gateway.proxy.wire import ClientWire, raw_target
from gateway.refusals import ReceptionFull

METRICS_MODES: Final = frozenset({"none", "usage", "event"})
CLOSED_EVENTS: Final = (Dialect.RESPONSES, Dialect.MESSAGES)
"""Dialects whose clients know a closed set of events."""

_HOST: Final = re.compile(r"[A-Za-z0-9._~%:\[\]\-]{0,255}")
_ASKS_STREAM: Final = (b"stream=t", b"stream=T", b"stream=1")
MAX_IDLE_BODY_BYTES: Final = 4096
"""Of a body where none says anything."""

LONG_BODY_BYTES: Final = 1024 * 1024
"""From here on a body takes milliseconds to read through."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def read_head(visit: Visit, request: web.BaseRequest, *, endpoints: Mapping[str, Endpoint]) -> Endpoint:
    """Take what the head says; returns the endpoint.  Raises UnknownEndpoint, MethodNotAllowed, BadRequest."""
    headers = request.headers
    visit.method = request.method
    visit.http_1_1 = request.version >= (1, 1)
    visit.keep_alive = request.keep_alive
    visit.request_id = client_request_id(headers.get("X-Request-Id")) or visit.request_id
    cors = visit.snapshot.policy.cors
    if cors.origins:
        visit.cors = answer_lines(cors, headers.get("Origin"))
    _check_framing(visit, request)
    path, _, query = raw_target(request).partition("?")
    found = locate(endpoints, path)
    if found is None:
        meant = nearest(endpoints, path)
        hint = f"; {meant} is one: is the client's base URL right?" if meant else ""
        raise UnknownEndpoint(f"there is no such endpoint here{hint}")
    visit.endpoint, visit.thing = endpoint, _ = found
    if request.method == "OPTIONS" and b"Access-Control-Allow-Origin" in visit.cors:
        visit.cors += preflight_lines(
            cors,
            methods=endpoint.methods,
            asked_headers=headers.get("Access-Control-Request-Headers"),
            asks_private=headers.get("Access-Control-Request-Private-Network") == "true",
        )
        return structs.replace(endpoint, serves=Serves.PREFLIGHT)
    if request.method not in endpoint.methods:
        raise MethodNotAllowed(f"this endpoint takes {' and '.join(sorted(endpoint.methods))} only")
    if query and endpoint.query:
        visit.query = checked_query(endpoint, query)
    metrics = headers.get("X-Gateway-Metrics")
    if metrics is not None:
        if metrics not in METRICS_MODES:
            raise BadRequest("X-Gateway-Metrics is none, usage or event", param="X-Gateway-Metrics")
        if metrics == "event" and endpoint.dialect in CLOSED_EVENTS:
            raise BadRequest(
                "X-Gateway-Metrics is none or usage here: no event can be added", param="X-Gateway-Metrics"
            )
        visit.metrics = metrics
    visit.asked_delivery = asked_delivery(headers)
    return endpoint


def _check_framing(visit: Visit, request: web.BaseRequest) -> None:
    """Refuse what another server on the way might read otherwise (the parser has refused the plain attacks)."""
    headers = request.headers
    if request.version < (1, 0):
        visit.keep_alive = False
        raise BadRequest("the request line names no HTTP version")
    encoding = headers.get("Transfer-Encoding")
    if encoding is not None and (not visit.http_1_1 or encoding.strip().lower() != "chunked"):
        visit.keep_alive = False
        raise BadRequest("the only Transfer-Encoding is chunked, with HTTP/1.1", param="Transfer-Encoding")
    if not _HOST.fullmatch(headers.get("Host", "")):
        visit.keep_alive = False
        raise BadRequest("the Host header is no host", param="Host")


async def read_body(
    visit: Visit,
    request: web.BaseRequest,
    *,
    endpoint: Endpoint,
    dialect: Dialect,
    intake: Intake,
    clock: Callable[[], float],
) -> None:
    """Receive the body, parse it, hold it against the parameter policy.

    Raises ClientError of the kind that fits, and ReceptionFull.
    """
    policy = visit.snapshot.policy
    headers, limits = request.headers, policy.limits
    boundary = ""
    match endpoint.takes:
        case Takes.JSON:
            media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if media_type != "application/json" and not media_type.endswith("+json"):
                raise BadRequest("the Content-Type must be application/json", param="Content-Type")
        case Takes.FORM:
            boundary = boundary_of(headers.get("Content-Type", ""))
        case Takes.NOTHING:
            limits = structs.replace(limits, body_bytes=MAX_IDLE_BODY_BYTES)
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedEncoding("the request body must not be compressed", param="Content-Encoding")
    length = request.content_length
    if length is not None and length > limits.body_bytes:
        raise _too_large(limits)
    _answer_expectation(request)
    data = await _receive(visit, request, limits, intake)
    visit.upload_s = clock() - visit.accepted
    visit.request_bytes = len(data)
    match endpoint.takes:
        case Takes.JSON:
            visit.body = await _read_json(data, dialect, policy.parameters)
        case Takes.FORM:
            visit.body = parse_form(data, boundary)
            check_fields(visit.body.fields, policy.parameters)
        case Takes.NOTHING:
            visit.body = no_body(stream=visit.query.startswith(_ASKS_STREAM))


async def _read_json(data: bytes, dialect: Dialect, policy: ParameterPolicy) -> ParsedBody:
    body = parse_body(data, dialect)
    if len(data) > LONG_BODY_BYTES:
        await asyncio.sleep(0)  # each of the two looks at every byte: others have a turn between them
    check_parameters(data, body.fields, policy)
    return body


def _answer_expectation(request: web.BaseRequest) -> None:
    expect = request.headers.get("Expect")
    if expect is None or request.version < (1, 1):
        return
    if expect.lower() != "100-continue":
        raise ExpectationFailed("the only expectation that can be met is 100-continue", param="Expect")
    wire = request.protocol
    if isinstance(wire, ClientWire) and not request.content.is_eof():
        wire.send(_CONTINUE)


async def _receive(visit: Visit, request: web.BaseRequest, limits: LimitPolicy, intake: Intake) -> bytes:  # noqa: PLR0917
    content = request.content
    if content.is_eof():  # the usual short body came with its head: no task switch, no timer
        return _within(content.read_nowait(), limits)
    pieces: list[bytes] = []
    received_bytes = counted_bytes = 0
    try:
        async with asyncio.timeout(limits.body_s):
            while piece := await content.readany():
                received_bytes += len(piece)
                if received_bytes > limits.body_bytes:
                    raise _too_large(limits)
                if received_bytes > FREE_BYTES:
                    intake.take(len(piece), limit_bytes=limits.receiving_bytes)
                    counted_bytes += len(piece)
                pieces.append(piece)
    except TimeoutError:
        raise BodyTimeout(f"the request body did not arrive within {limits.body_s:g} s") from None
    except web.RequestPayloadError:
        visit.keep_alive = False  # where the next request would begin is anybody's guess
        raise BadRequest("the request body is cut or badly framed") from None
    except ReceptionFull:
        visit.keep_alive = False  # the rest of the body is not read
        raise
    finally:
        intake.let_go(counted_bytes)
    return b"".join(pieces)


def _within(data: bytes, limits: LimitPolicy) -> bytes:
    if len(data) > limits.body_bytes:
        raise _too_large(limits)
    return data


def _too_large(limits: LimitPolicy) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is over the limit of {limits.body_bytes} bytes")
