"""The endpoint map of the client port, as data; default deny.

Station admit.  A path that is not here gets 404 and nothing is sent upstream.  The upstream path is always the
constant of this table, never bytes from the client; a query string is not forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from gateway.core.stream.summary import Dialect


class Serves(StrEnum):
    """Who answers."""

    ENGINE = "engine"
    MODELS = "models"
    HEALTH = "health"
    READY = "ready"
    VERSION = "version"
    USAGE = "usage"
    REASONING = "reasoning"
    PREFLIGHT = "preflight"


class Endpoint(Struct, frozen=True):
    """One path of the client port.  ``name`` is its label in records and metrics."""

    name: str
    path: str
    methods: frozenset[str]
    serves: Serves
    dialect: Dialect | None = None

    @property
    def upstream_path(self) -> bytes:
        """The request target for the backend."""
        return self.path.encode("ascii")


_POST: Final = frozenset({"POST"})
_GET: Final = frozenset({"GET", "HEAD"})

_ALL: Final = (
    Endpoint("chat", "/v1/chat/completions", _POST, Serves.ENGINE, Dialect.CHAT),
    Endpoint("completions", "/v1/completions", _POST, Serves.ENGINE, Dialect.COMPLETIONS),
    Endpoint("reasoning", "/v1/reasoning/{id}", frozenset({"GET"}), Serves.REASONING),
    Endpoint("models", "/v1/models", _GET, Serves.MODELS),
    Endpoint("usage", "/v1/usage", _GET, Serves.USAGE),
    Endpoint("health", "/health", _GET, Serves.HEALTH),
    Endpoint("ready", "/ready", _GET, Serves.READY),
    Endpoint("version", "/version", _GET, Serves.VERSION),
)

ENDPOINTS: Final[Mapping[str, Endpoint]] = MappingProxyType({endpoint.path: endpoint for endpoint in _ALL})
"""Path -> endpoint."""

SIDE_ID: Final = re.compile(r"[0-9a-f]{1,4}-[A-Za-z0-9_-]{32}")
"""The id of a side stream: the worker's slot, and what cannot be guessed."""

_SIDE_PREFIX: Final = "/v1/reasoning/"


def side_id_in(path: str) -> str | None:
    """The id in the path of a side stream; None for any other path."""
    side_id = path.removeprefix(_SIDE_PREFIX)
    return side_id if side_id != path and SIDE_ID.fullmatch(side_id) else None
