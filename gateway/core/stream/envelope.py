"""How the gateway's own errors look to a client: as a JSON body before the head, as an event after it.

Stations relay and settle.  OpenAI's envelope for chat and completions (and everything without a dialect), Anthropic's
for Messages.  An error event is followed by the endpoint's end marker, so that a client sees a whole, failed answer;
a finish_reason is never made up.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.core.stream.summary import Dialect
from gateway.errors import GatewayError

DONE_EVENT: Final = b"data: [DONE]\n\n"


class _Error(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str


class _OpenAI(msgspec.Struct, frozen=True):
    error: _Error


class _AnthropicError(msgspec.Struct, frozen=True):
    type: str
    message: str


class _Anthropic(msgspec.Struct, frozen=True):
    error: _AnthropicError
    type: str = "error"


def error_body(error: GatewayError, dialect: Dialect | None) -> bytes:
    """``error`` as the JSON body that clients of ``dialect`` parse."""
    if dialect is Dialect.MESSAGES:
        return msgspec.json.encode(_Anthropic(_AnthropicError(error.type, error.message)))
    return msgspec.json.encode(_OpenAI(_Error(error.message, error.type, error.param, error.code)))


def error_event(error: GatewayError, dialect: Dialect) -> bytes:
    """``error`` as Server-Sent Events, end marker included."""
    body = error_body(error, dialect)
    if dialect in (Dialect.MESSAGES, Dialect.RESPONSES):
        return b"event: error\ndata: " + body + b"\n\n"
    return b"data: " + body + b"\n\n" + DONE_EVENT
