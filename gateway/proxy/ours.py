"""What the client port answers from the gateway itself: /health, /ready, /version preflights and the list of models.

Beside the stations: nothing here reaches a backend, and none of it is a request to be settled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from gateway.core.routing.endpoints import Endpoint, Serves
from gateway.errors import NotFound, NothingServing, ShuttingDown
from gateway.proxy import envelope
from gateway.proxy.route import RETRY_AFTER_S, Desk


class ModelList(msgspec.Struct, frozen=True):
    """OpenAI's shape of ``GET /v1/models``."""

    data: tuple[msgspec.Raw, ...]
    object: str = "list"


def answer_ourselves(
    endpoint: Endpoint,
    desk: Desk,
    *,
    version: str,
    headers: bytes,
    with_body: bool,
    may_use: Callable[[str], bool] | None = None,
) -> bytes:
    """The whole response; of models those that the client ``may_use``.

    Raises ShuttingDown or NothingServing where that is the answer.
    """
    match endpoint.serves:
        case Serves.HEALTH:
            body = b'{"status":"ok"}'
        case Serves.READY:
            _check_ready(desk)
            body = b'{"status":"ready"}'
        case Serves.VERSION:
            body = msgspec.json.encode({"version": version})
        case Serves.MODELS:
            cards = desk.snapshot.cards if may_use is None else [it for it in desk.snapshot.cards if may_use(it.id)]
            body = msgspec.json.encode(ModelList(tuple(msgspec.Raw(card.raw) for card in cards)))
        case Serves.REASONING:
            raise NotFound("there is no such reasoning stream, or not any more")  # one without an id
        case Serves.PREFLIGHT:
            return envelope.head(204, b"No Content", headers=headers, length=None, chunked=False)
        case Serves.ENGINE | Serves.USAGE:
            raise NothingServing("this endpoint is the backends' to answer")
        case _:
            assert_never(endpoint.serves)
    return envelope.response(200, body, headers=headers, with_body=with_body)


def _check_ready(desk: Desk) -> None:
    if desk.stopping:
        raise ShuttingDown("the gateway is shutting down", retry_after_s=RETRY_AFTER_S)
    if not desk.serving:
        raise NothingServing("no backend is serving", retry_after_s=desk.away_s)
