"""The answers of vLLM to requests that it does not serve: statuses and words as recorded.

Pure.  Three forms: the API's own error object, the framework's ``detail`` (unknown path, wrong method), and the
validation message, which names the type, place and input of what was wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class Refused(Exception):
    """A request that is answered with an error: its status, body, and an extra header line (``b""`` for none).

    ``fault`` is (type, message) where the serving layer made the error: only those have another form in another API.
    """

    status: int
    body: bytes
    header: bytes = b""
    has_vary: bool = True
    fault: tuple[str, str] | None = None

    def as_message(self) -> Refused:
        """Return it in the form of the Messages API, whose handler catches what would leave past the middleware."""
        if self.fault is None:
            return self
        kind, message = self.fault
        return Refused(self.status, _json({"type": "error", "error": {"type": kind, "message": message}}))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def api_error(
    status: int, kind: str, *, message: str, param: str | None = None, is_served: bool = True, has_vary: bool = True
) -> Refused:
    """Return the API's error object, for example ``(404, "NotFoundError", message=..., param="model")``.

    ``is_served`` is False for the errors of the layers before the serving one.
    """
    body = _json({"error": {"message": message, "type": kind, "param": param, "code": status}})
    return Refused(status, body, has_vary=has_vary, fault=(kind, message) if is_served else None)


def bad_request(message: str, *, param: str | None = None, value: object = None) -> Refused:
    """Return the 400 of the serving layer; it names the parameter, and the value where there is one, in its words."""
    if param is not None:
        told = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
        message = f"{message} ({told})"
    return api_error(400, "BadRequestError", message=message, param=param)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that validation finds wrong: ``place`` is dotted, ``given`` what was found there."""

    kind: str
    place: str
    message: str
    given: object
    context: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        told: dict[str, Any] = {"type": self.kind, "loc": self.place, "msg": self.message, "input": _shown(self.given)}
        return str(told | {"ctx": dict(self.context)} if self.context else told)


def validation(faults: Sequence[Fault]) -> Refused:
    """Return the 400 of the validation layer for all that is wrong; it names the place of the first."""
    count = f"{len(faults)} validation error{'' if len(faults) == 1 else 's'}:"
    message = "\n".join([count, *(f"  {fault}" for fault in faults)])
    return api_error(400, "Bad Request", message=message, param=faults[0].place, is_served=False)


def invalid(kind: str, place: str, *, message: str, given: object, context: dict[str, str] | None = None) -> Refused:
    """Return the 400 of the validation layer for one fault."""
    return validation([Fault(kind, place, message, given, context)])


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


def unreadable() -> Refused:
    """Return the 400 for a body that is no text."""
    return api_error(400, "Bad Request", message="There was an error parsing the body", is_served=False)


def no_json_type() -> Refused:
    """Return the 400 for a body of another content type."""
    words = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    return api_error(400, "Bad Request", message=words, is_served=False)


def unknown_path() -> Refused:
    """Return the 404 of a path that is not there."""
    return Refused(404, b'{"detail":"Not Found"}')


def wrong_method(allowed: str) -> Refused:
    """Return the 405 of a path that is there for another method."""
    return Refused(405, b'{"detail":"Method Not Allowed"}', header=f"allow: {allowed}\r\n".encode())


def no_key() -> Refused:
    """Return the 401 for a missing or wrong API key; it comes before every other check, and without ``vary``."""
    return Refused(401, b'{"error":"Unauthorized"}', has_vary=False)


def unknown_model(model: str, *, served: str) -> Refused:
    """Return the 404 for a model that is not served."""
    words = f"The model `{model}` does not exist. Valid aliases: {served}."
    return api_error(404, "NotFoundError", message=words, param="model")


def draining() -> Refused:
    """Return the 500 for a request that comes after SIGTERM; no ``vary`` header, since it left past the middleware."""
    words = "cannot schedule new futures after shutdown"
    return api_error(500, "InternalServerError", message=words, has_vary=False)


def queue_full(reason: str) -> Refused:
    """Return the 503 of an admission limit."""
    return api_error(503, "Service Unavailable", message=f"{reason} Please try again later or on a different instance.")


TOO_MANY_REQUESTS = "The engine is currently busy and cannot accept new requests."
TOO_MANY_TOKENS = "The engine has reached its prefill token backlog limit."


def empty_conversation() -> Refused:
    """Return the 400 for a conversation without a message."""
    return bad_request("Cannot apply chat template to an empty conversation. Provide at least one message.")


def not_multimodal(model: str) -> Refused:
    """Return the 400 for an image."""
    return bad_request(f"{model} is not a multimodal model")


def no_response(response_id: str) -> Refused:
    """Return the 404 for a response that is not stored: no response is."""
    words = f"Response with id '{response_id}' not found."
    return api_error(404, "invalid_request_error", message=words, param="response_id")


ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def engine_dead() -> Refused:
    """Return the 500 for a request that an engine's death ended."""
    return api_error(500, "InternalServerError", message=ENGINE_DEAD)
