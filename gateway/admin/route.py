"""A route as a value: verb, path, scope, handler, and what the description of the API says about it.

A route cannot be made without a scope, and :func:`require_declared` ends the start-up when a handler got onto the
application by another way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from gateway.admin.access import Caller, Gate
from gateway.admin.tokens import Scope
from gateway.errors import BadRequest

Handler = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]
Guarded = Callable[[web.Request], Awaitable[web.StreamResponse]]
Query = TypeVar("Query", bound=Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One endpoint.

    ``answer`` is the struct of the good ``status``, or a media type; ``others`` the structs of further statuses;
    ``query`` the struct of the query string; ``body`` says in words what is sent, ``takes`` its struct where it is
    JSON.  ``name`` identifies the operation.
    """

    name: str
    method: str
    path: str
    scope: Scope
    handle: Handler
    summary: str
    answer: type[Struct] | str
    others: Mapping[int, type[Struct]] = field(default_factory=dict)
    query: type[Struct] | None = None
    body: str = ""
    takes: type[Struct] | None = None
    status: int = 200


def guarded(route: Route, gate: Gate) -> Guarded:
    """The route's handler behind the gate."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await route.handle(request, gate.admit(request, route.scope))

    return handle


def require_declared(app: web.Application, declared: Collection[object]) -> None:
    """Raise RuntimeError when ``app`` has a route whose handler is none of ``declared``: nobody gave it a scope."""
    for route in app.router.routes():
        if route.handler not in declared:
            place = route.resource.canonical if route.resource is not None else "?"
            raise RuntimeError(f"{route.method} {place}: a route without a declared scope")


def read_query(request: web.Request, into: type[Query]) -> Query:
    """The query string as a struct.  Raises BadRequest for unknown, doubled or ill-formed parameters."""
    given: dict[str, str] = {}
    for name, value in request.query.items():
        if name in given:
            raise BadRequest(f"{name}: given twice", param=name)
        given[name] = value
    try:
        return msgspec.convert(given, into, strict=False)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        raise BadRequest(words, param=place.strip(".`") or None) from error
