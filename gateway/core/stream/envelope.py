"""How the gateway's own errors look to a client: as a JSON body before the head, as an event after it.

Stations relay and settle.  OpenAI's envelope, Anthropic's for Messages.  An error event is followed by the endpoint's
end marker where it has one, so that a client sees a whole, failed answer: after the error events of Responses and
Messages nothing comes.  A finish_reason is never made up.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import msgspec

from gateway.core.stream.summary import Dialect
from gateway.errors import BackendError, GatewayError

DONE_EVENT: Final = b"data: [DONE]\n\n"


class _Error(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str


class _OpenAI(msgspec.Struct, frozen=True):
    error: _Error


class _ResponsesEvent(msgspec.Struct, frozen=True):
    """An error event of Responses: its fields as that API has them, and the envelope, by which SDKs know errors."""

    code: str
    message: str
    param: str | None
    error: _Error
    type: str = "error"


class _AnthropicError(msgspec.Struct, frozen=True):
    type: str
    message: str


class _Anthropic(msgspec.Struct, frozen=True):
    error: _AnthropicError
    type: str = "error"


def error_body(error: GatewayError, dialect: Dialect | None) -> bytes:
    """``error`` as the JSON body that clients of ``dialect`` parse."""
    if dialect is Dialect.MESSAGES:
        kind = _ANTHROPIC_TYPES.get(error.status, error.type)
        return msgspec.json.encode(_Anthropic(_AnthropicError(kind, error.message)))
    return msgspec.json.encode(_OpenAI(_envelope(error)))


def _envelope(error: GatewayError) -> _Error:
    return _Error(error.message, error.type, error.param, error.code)


def error_event(error: GatewayError, dialect: Dialect) -> bytes:
    """``error`` as Server-Sent Events, end marker included."""
    match dialect:
        case Dialect.MESSAGES:
            return b"event: error\ndata: " + error_body(error, dialect) + b"\n\n"
        case Dialect.RESPONSES:
            event = _ResponsesEvent(error.code, error.message, error.param, _envelope(error))
            return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"
        case _:
            return b"data: " + error_body(error, dialect) + b"\n\n" + DONE_EVENT


class _Told(msgspec.Struct, frozen=True):
    """What is read of an engine's error body, which has one of two shapes."""

    message: str
    type: str = "upstream_error"
    param: str | None = None
    code: str | int | None = None


class _ToldBody(msgspec.Struct, frozen=True):
    error: _Told


def relayed_error_event(body: bytes, *, status: int, dialect: Dialect) -> bytes:
    """An engine's error body as events, end marker included, for a client that has its 200 already.

    The words are the engine's; a body that cannot be read is told by ``status``.
    """
    try:
        told = msgspec.json.decode(body, type=_ToldBody).error
        line = msgspec.json.format(body, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return error_event(BackendError(f"the backend answered with status {status}"), dialect)
    match dialect:
        case Dialect.MESSAGES:
            event = _Anthropic(_AnthropicError(told.type, told.message))
            return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"
        case Dialect.RESPONSES:
            code = "" if told.code is None else str(told.code)
            inner = _Error(told.message, told.type, told.param, code)
            named = _ResponsesEvent(code, told.message, told.param, inner)
            return b"event: error\ndata: " + msgspec.json.encode(named) + b"\n\n"
        case _:
            return b"data: " + line + b"\n\n" + DONE_EVENT


_ANTHROPIC_TYPES: Final = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        405: "invalid_request_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        502: "api_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
)
"""What that API calls an error of a status; clients tell them apart by these words."""
