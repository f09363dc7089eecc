"""The answers of vLLM to requests that it does not serve: statuses and words as recorded.

Pure.  Three forms: the API's own error object, the framework's ``detail`` (unknown path, wrong method), and the
validation message, which names the type, place and input of what was wrong.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class Refused(Exception):
    """A request that is answered with an error: its status, body, and an extra header line (``b""`` for none)."""

    status: int
    body: bytes
    header: bytes = b""
    has_vary: bool = True


def api_error(status: int, kind: str, *, message: str, param: str | None = None) -> Refused:
    """Return the API's error object, for example ``(404, "NotFoundError", message=..., param="model")``."""
    fault = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return Refused(status, json.dumps(fault, separators=(",", ":"), ensure_ascii=False).encode())


def bad_request(message: str, *, param: str | None = None, value: object = None) -> Refused:
    """Return the 400 of the serving layer; it names the parameter, and the value where there is one, in its words."""
    if param is not None:
        told = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
        message = f"{message} ({told})"
    return api_error(400, "BadRequestError", message=message, param=param)


def invalid(kind: str, place: str, *, message: str, given: object, context: dict[str, str] | None = None) -> Refused:
    """Return the 400 of the validation layer: ``place`` is dotted, ``given`` what was found there."""
    told: dict[str, Any] = {"type": kind, "loc": place, "msg": message, "input": _shown(given)}
    if context:
        told["ctx"] = context
    return api_error(400, "Bad Request", message=f"1 validation error:\n  {told}", param=place)


def _shown(given: object) -> str:
    if isinstance(given, dict):
        return f"<dict of {len(given)} items>"
    if isinstance(given, list):
        return f"<list of {len(given)} items>"
    return str(given)


def bad_json(error: json.JSONDecodeError) -> Refused:
    """Return the 400 for a body that is no JSON; the place is the character that could not be read."""
    return invalid(
        "json_invalid", f"body.{error.pos}", message="JSON decode error", given={}, context={"error": error.msg}
    )


def no_json_type() -> Refused:
    """Return the 400 for a body of another content type."""
    words = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    return api_error(400, "Bad Request", message=words)


def unknown_path() -> Refused:
    """Return the 404 of a path that is not there."""
    return Refused(404, b'{"detail":"Not Found"}')


def wrong_method(allowed: str) -> Refused:
    """Return the 405 of a path that is there for another method."""
    return Refused(405, b'{"detail":"Method Not Allowed"}', header=f"allow: {allowed}\r\n".encode())


def no_key() -> Refused:
    """Return the 401 for a missing or wrong API key; no ``vary`` header, since it left before the middleware."""
    return Refused(401, b'{"error":"Unauthorized"}', has_vary=False)


def unknown_model(model: str, *, served: str) -> Refused:
    """Return the 404 for a model that is not served."""
    words = f"The model `{model}` does not exist. Valid aliases: {served}."
    return api_error(404, "NotFoundError", message=words, param="model")


def draining() -> Refused:
    """Return the 500 for a request that comes after SIGTERM; no ``vary`` header, since it left past the middleware."""
    refused = api_error(500, "InternalServerError", message="cannot schedule new futures after shutdown")
    return Refused(refused.status, refused.body, has_vary=False)


QUEUE_FULL = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)
BACKLOG_FULL = (
    "The engine has reached its prefill token backlog limit. Please try again later or on a different instance."
)


def queue_full(message: str = QUEUE_FULL) -> Refused:
    """Return the 503 of the admission limits: ``QUEUE_FULL`` or ``BACKLOG_FULL``."""
    return api_error(503, "Service Unavailable", message=message)


ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def engine_dead() -> Refused:
    """Return the 500 for a request that an engine's death ended."""
    return api_error(500, "InternalServerError", message=ENGINE_DEAD)
