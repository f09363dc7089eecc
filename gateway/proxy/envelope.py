"""Response heads and whole responses that the gateway writes itself.

Stations relay and settle.  Bytes only; the shapes of error bodies are in ``core/stream/envelope.py``.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final

from gateway.core.stream.envelope import error_body
from gateway.core.stream.summary import Dialect
from gateway.errors import GatewayError

_CLOSE: Final = b"Connection: close\r\n"
_KEEP: Final = b"Connection: keep-alive\r\n"


def connection_line(*, keep_alive: bool, http_1_1: bool) -> bytes:
    """The Connection header where the version's default says otherwise, else nothing."""
    if keep_alive:
        return b"" if http_1_1 else _KEEP
    return _CLOSE if http_1_1 else b""


def head(status: int, reason: bytes, *, headers: bytes, length: int | None, chunked: bool) -> bytes:
    """A response head; ``headers`` are complete lines; ``length`` None, not ``chunked``: ends with the connection."""
    if length is not None:
        framing = b"Content-Length: %d\r\n" % length
    else:
        framing = b"Transfer-Encoding: chunked\r\n" if chunked else b""
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, reason, headers, framing)


def response(status: int, body: bytes, *, headers: bytes = b"", with_body: bool = True) -> bytes:
    """A whole JSON response; without its body for HEAD."""
    lines = b"Content-Type: application/json\r\n" + headers if body else headers
    start = head(status, HTTPStatus(status).phrase.encode("ascii"), headers=lines, length=len(body), chunked=False)
    return start + body if with_body else start


def error_response(error: GatewayError, *, dialect: Dialect | None, headers: bytes, with_body: bool = True) -> bytes:
    """The gateway's own error as a whole response; without its body for HEAD."""
    lines = headers + b"X-Gateway-Error: 1\r\n"
    if error.status == 401:
        lines += b"WWW-Authenticate: Bearer\r\n"  # RFC 9110 section 11.6.1: every 401 names a scheme
    if error.retry_after_s is not None:
        lines += b"Retry-After: %d\r\n" % max(1, math.ceil(error.retry_after_s))
    return response(error.status, error_body(error, dialect), headers=lines, with_body=with_body)
