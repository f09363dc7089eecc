"""Which paths there are, and which methods each takes.

Pure.  What a path answers is the face's business.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Route(StrEnum):
    """Every path; braces stand for one segment of any text."""

    HEALTH = "/health"
    PING = "/ping"
    VERSION = "/version"
    LOAD = "/load"
    METRICS = "/metrics"
    MODELS = "/v1/models"
    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    RESPONSE = "/v1/responses/{}"
    CANCEL = "/v1/responses/{}/cancel"
    MESSAGES = "/v1/messages"
    COUNT = "/v1/messages/count_tokens"
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"
    LOAD_ADAPTER = "/v1/load_lora_adapter"
    UNLOAD_ADAPTER = "/v1/unload_lora_adapter"


_METHODS: Final = {
    Route.HEALTH: "GET", Route.PING: "GET, POST", Route.VERSION: "GET", Route.LOAD: "GET", Route.METRICS: "GET",
    Route.MODELS: "GET", Route.CHAT: "POST", Route.COMPLETIONS: "POST", Route.RESPONSES: "POST",
    Route.RESPONSE: "GET", Route.CANCEL: "POST", Route.MESSAGES: "POST", Route.COUNT: "POST", Route.TOKENIZE: "POST",
    Route.DETOKENIZE: "POST", Route.LOAD_ADAPTER: "POST", Route.UNLOAD_ADAPTER: "POST",
}  # fmt: skip
_ITEM_PREFIX: Final = "/v1/responses/"


def find(path: str) -> tuple[Route, str] | None:
    """Return (the route, the methods it takes) of a path, None for one that is not there."""
    route = _of_response(path) if path.startswith(_ITEM_PREFIX) else next((one for one in Route if one == path), None)
    return None if route is None else (route, _METHODS[route])


def response_id(path: str) -> str:
    """Return the id in the path of a response."""
    return path.removeprefix(_ITEM_PREFIX).partition("/")[0]


def _of_response(path: str) -> Route | None:
    name, slash, rest = path.removeprefix(_ITEM_PREFIX).partition("/")
    if not name or (slash and rest != "cancel"):
        return None
    return Route.CANCEL if slash else Route.RESPONSE
