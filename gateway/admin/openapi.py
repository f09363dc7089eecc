"""The description of the admin API (OpenAPI 3.1), made from the routes and the structs that they send.

Nothing is written twice: schemas come from the structs by msgspec, parameters from the query structs, the rest from
the route.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.admin.route import Route
from gateway.admin.schemas import ErrorBody
from gateway.admin.tokens import Scope

Json = dict[str, Any]

_REF: Final = "#/components/schemas/{name}"
_PATH_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_TITLE: Final = "Pacekeeper admin API"
_ABOUT: Final = (
    "For operators. Tokens go into `Authorization: Bearer TOKEN`; the scopes read, operate and admin include each other"
    " in that order. Every error has the shape `ErrorBody` and the header `X-Gateway-Error: 1`."
)


def describe(routes: Sequence[Route], *, version: str) -> bytes:
    """The OpenAPI document as JSON text."""
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    document = {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "description": _ABOUT, "version": version},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(document)


def _operation(route: Route) -> Json:
    operation: Json = {
        "operationId": route.name,
        "summary": route.summary,
        "x-scope": route.scope.word,
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.scope is Scope.OPEN:
        operation["security"] = []
    if route.body:
        content: Json = {"text/plain": {"schema": {"type": "string"}}}
        if route.takes is not None:
            content = {"application/json": {"schema": {"$ref": _REF.format(name=route.takes.__name__)}}}
        operation["requestBody"] = {"description": route.body, "required": route.takes is not None, "content": content}
    return operation


def _parameters(route: Route) -> list[Json]:
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_PARAMETER.findall(route.path)
    ]
    if route.query is not None:
        _, components = msgspec.json.schema_components([route.query], ref_template=_REF)
        for name, schema in components[route.query.__name__]["properties"].items():
            words = schema.pop("description", "")
            found.append({"name": name, "in": "query", "required": False, "description": words, "schema": schema})
    return found


def _responses(route: Route) -> Json:
    answers = {route.status: route.answer, **route.others}
    found: Json = {str(status): _response(status, answer) for status, answer in sorted(answers.items())}
    found["default"] = {"description": "Any error.", "content": _content(ErrorBody)}
    return found


def _response(status: int, answer: type[Struct] | str) -> Json:
    return {"description": HTTPStatus(status).phrase, "content": _content(answer)}


def _content(answer: type[Struct] | str) -> Json:
    if isinstance(answer, str):
        return {answer: {}}
    return {"application/json": {"schema": {"$ref": _REF.format(name=answer.__name__)}}}


def _schemas(routes: Iterable[Route]) -> Json:
    answers: list[type[Struct]] = [ErrorBody]
    queries: list[type[Struct]] = []
    for route in routes:
        answers += [answer for answer in (route.answer, *route.others.values()) if not isinstance(answer, str)]
        queries += [route.query] if route.query is not None else []
    _, components = msgspec.json.schema_components([*answers, *queries], ref_template=_REF)
    for query in queries:
        components.pop(query.__name__, None)
    for schema in components.values():
        _require_all(schema)
    bodies = [route.takes for route in routes if route.takes is not None]
    _, taken = msgspec.json.schema_components(bodies, ref_template=_REF)
    return {**taken, **components}


def _require_all(schema: Json) -> None:
    # Answers name every field, those at their defaults too.
    if schema.get("type") == "object" and "properties" in schema:
        schema["required"] = list(schema["properties"])
        for field in schema["properties"].values():
            field.pop("default", None)
