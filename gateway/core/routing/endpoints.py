"""The endpoint map of the client port, as data; default deny.

Station admit.  A path that is not here gets 404 and nothing is sent upstream.  The upstream path is always the
constant of this table, never bytes from the client; where it holds an id, that is an id of the strict grammar below.
Of a query string only what the table names is sent on, written anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from gateway.core.stream.summary import Dialect
from gateway.errors import BadRequest

ID: Final = re.compile(r"resp_[A-Za-z0-9_\-]{1,123}")
"""What may stand for ``{id}`` in a path to an engine: an id of a response, so no name of another endpoint; no dots, so
no way up."""

SIDE_ID: Final = re.compile(r"[0-9a-f]{1,4}-[A-Za-z0-9_-]{32}")
"""The id of a side stream: the worker's slot, and what cannot be guessed."""

_SLOT: Final = "{id}"

JSON_ANSWER: Final = (b"application/json",)


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


class Takes(StrEnum):
    """What kind of body a request has."""

    JSON = "json"
    FORM = "form"  # multipart/form-data
    NOTHING = "nothing"  # none that says anything: what comes is read and dropped


class Endpoint(Struct, frozen=True):
    """One path of the client port.  ``name`` is its label in records and metrics.

    ``answers`` are the media types that a whole answer may have; ``query`` maps the names that are sent on to what
    their values must be; ``errors_as`` is the dialect of its errors where that is not its own.  A path with ``{id}``
    is about a thing that one backend holds: its requests go there.
    """

    name: str
    path: str
    methods: frozenset[str]
    serves: Serves
    dialect: Dialect | None = None
    takes: Takes = Takes.JSON
    answers: tuple[bytes, ...] = JSON_ANSWER
    query: tuple[tuple[str, str], ...] = ()
    errors_as: Dialect | None = None

    @property
    def owned(self) -> bool:
        """Whether its path names a thing that one backend holds."""
        return _SLOT in self.path and self.serves is Serves.ENGINE

    @property
    def ids(self) -> re.Pattern[str]:
        """What may stand for the id in its path."""
        return ID if self.serves is Serves.ENGINE else SIDE_ID

    @property
    def streams(self) -> bool:
        """Whether its answers may be event streams."""
        return self.dialect is not None and self.dialect is not Dialect.OPAQUE

    @property
    def error_dialect(self) -> Dialect | None:
        """Whose shape the gateway's own errors have here."""
        return self.errors_as or self.dialect

    @property
    def upstream_path(self) -> bytes:
        """The request target for the backend, of a path without an id."""
        return self.path.encode("ascii")

    def target(self, thing: str, query: bytes) -> bytes:
        """The request target for the backend, about ``thing``, which fits :data:`ID`, with a checked ``query``."""
        path = self.path.replace(_SLOT, thing) if thing else self.path
        return path.encode("ascii") + (b"?" + query if query else b"")


def locate(endpoints: Mapping[str, Endpoint], path: str) -> tuple[Endpoint, str] | None:
    """The endpoint at ``path`` and the id in it ("" where it has none); None where there is none."""
    endpoint = endpoints.get(path)
    if endpoint is not None:
        return None if _SLOT in endpoint.path else (endpoint, "")  # the template itself is nobody's path
    front, _, last = path.rpartition("/")
    endpoint = endpoints.get(f"{front}/{_SLOT}")
    if endpoint is not None and endpoint.ids.fullmatch(last):
        return endpoint, last
    front, _, thing = front.rpartition("/")
    if ID.fullmatch(thing) and (endpoint := endpoints.get(f"{front}/{_SLOT}/{last}")):
        return endpoint, thing
    return None


def nearest(endpoints: Mapping[str, Endpoint], path: str) -> str:
    """The path that a client with a wrong base URL means, ``/v1`` missing or doubled; "" where none is in sight."""
    meant = path.removeprefix("/v1") if path.startswith("/v1/v1/") else f"/v1{path}"
    return meant if locate(endpoints, meant) is not None else ""


def checked_query(endpoint: Endpoint, query: str) -> bytes:
    """What of ``query`` is sent on: the named parameters, each once.  Raises BadRequest for a value that is none."""
    given = dict(pair.partition("=")[::2] for pair in query.split("&"))
    kept = []
    for name, pattern in endpoint.query:
        value = given.get(name)
        if value is None:
            continue
        if not re.fullmatch(pattern, value):
            raise BadRequest(f"{name} in the query is no value that can be sent on", param=name)
        kept.append(f"{name}={value}")
    return "&".join(kept).encode("ascii")


def _engine(name: str, path: str, dialect: Dialect = Dialect.OPAQUE) -> Endpoint:
    return Endpoint(name, path, _POST, Serves.ENGINE, dialect)


def _pooling(name: str, path: str) -> Endpoint:
    return Endpoint(name, path, _POST, Serves.ENGINE, Dialect.OPAQUE, answers=_VECTORS)


def _audio(name: str, path: str) -> Endpoint:
    return Endpoint(
        name, path, _POST, Serves.ENGINE, Dialect.TRANSCRIPTION, takes=Takes.FORM, answers=(*JSON_ANSWER, b"text/plain")
    )


def _response(name: str, path: str, method: str, *, query: tuple[tuple[str, str], ...] = ()) -> Endpoint:
    return Endpoint(name, path, frozenset({method}), Serves.ENGINE, Dialect.RESPONSES, takes=Takes.NOTHING, query=query)


_POST: Final = frozenset({"POST"})
_GET: Final = frozenset({"GET", "HEAD"})
_VECTORS: Final = (*JSON_ANSWER, b"application/octet-stream")
"""Vectors come as numbers in JSON, or as bytes when they were asked for so."""

_ALL: Final = (
    _engine("chat", "/v1/chat/completions", Dialect.CHAT),
    _engine("completions", "/v1/completions", Dialect.COMPLETIONS),
    _engine("responses", "/v1/responses", Dialect.RESPONSES),
    _response(
        "response",
        "/v1/responses/{id}",
        "GET",
        query=(("stream", r"true|false|True|False|1|0"), ("starting_after", r"[0-9]{1,9}")),
    ),
    _response("response_cancel", "/v1/responses/{id}/cancel", "POST"),
    _engine("messages", "/v1/messages", Dialect.MESSAGES),
    Endpoint(
        "count_tokens",
        "/v1/messages/count_tokens",
        _POST,
        Serves.ENGINE,
        Dialect.OPAQUE,
        errors_as=Dialect.MESSAGES,
    ),
    _pooling("embeddings", "/v1/embeddings"),
    _pooling("pooling", "/pooling"),
    _engine("classify", "/classify"),
    _engine("score", "/score"),
    _engine("score_v1", "/v1/score"),
    _engine("rerank", "/rerank"),
    _engine("rerank_v1", "/v1/rerank"),
    _engine("rerank_v2", "/v2/rerank"),
    _engine("tokenize", "/tokenize"),
    _engine("detokenize", "/detokenize"),
    _audio("transcriptions", "/v1/audio/transcriptions"),
    _audio("translations", "/v1/audio/translations"),
    Endpoint("reasoning", "/v1/reasoning/{id}", frozenset({"GET"}), Serves.REASONING),
    Endpoint("models", "/v1/models", _GET, Serves.MODELS),
    Endpoint("usage", "/v1/usage", _GET, Serves.USAGE),
    Endpoint("health", "/health", _GET, Serves.HEALTH),
    Endpoint("ready", "/ready", _GET, Serves.READY),
    Endpoint("version", "/version", _GET, Serves.VERSION),
)

ENDPOINTS: Final[Mapping[str, Endpoint]] = MappingProxyType({endpoint.path: endpoint for endpoint in _ALL})
"""Path -> endpoint."""
