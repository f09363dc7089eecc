"""What leaves the admin API: JSON with every field named, and errors in their one shape.

Records leave their defaults out on the link and on the disk; here every field is written, null where nothing is
known, so that a script can rely on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web
from msgspec import Struct

from gateway.core.stream.envelope import error_body
from gateway.errors import GatewayError, NotAuthenticated, StoreUnusable

_SAFE: Final[Mapping[str, str]] = MappingProxyType(
    {hdrs.CACHE_CONTROL: "no-store", "X-Content-Type-Options": "nosniff", hdrs.SERVER: "pacekeeper"}
)


def whole(value: object) -> Any:
    """``value`` as plain data with every field of every struct in it, those at their defaults too."""
    match value:
        case Struct():
            return {name: whole(getattr(value, name)) for name in value.__struct_fields__}
        case dict():
            return {key: whole(item) for key, item in value.items()}
        case list() | tuple():
            return [whole(item) for item in value]
        case _:
            return value


def json_answer(value: Struct, *, status: int = 200) -> web.Response:
    """``value`` as a JSON response."""
    return bytes_answer(msgspec.json.encode(whole(value)), "application/json", status=status)


def bytes_answer(body: bytes, content_type: str, *, status: int = 200) -> web.Response:
    """A finished body as a response; ``content_type`` is sent as it stands."""
    return web.Response(status=status, body=body, headers={**_SAFE, hdrs.CONTENT_TYPE: content_type})


def stream_head(content_type: str) -> web.StreamResponse:
    """The head of a response that is written bit by bit."""
    return web.StreamResponse(headers={**_SAFE, hdrs.CONTENT_TYPE: content_type})


def error_answer(error: GatewayError, *, allow: str = "") -> web.Response:
    """``error`` as a response; ``allow`` lists the verbs that a path does have."""
    answer = bytes_answer(error_body(error, None), "application/json", status=status_of(error))
    mark_error(answer, error)
    if allow:
        answer.headers[hdrs.ALLOW] = allow
    return answer


def mark_error(answer: web.Response, error: GatewayError) -> None:
    """Add the headers that go with an error of our own."""
    answer.headers["X-Gateway-Error"] = "1"
    if error.retry_after_s is not None:
        answer.headers[hdrs.RETRY_AFTER] = str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, NotAuthenticated):
        answer.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="pacekeeper"'


def status_of(error: GatewayError) -> int:
    """The HTTP status: the error's own, but a store in trouble is no fault of the question."""
    return 503 if isinstance(error, StoreUnusable) else error.status
