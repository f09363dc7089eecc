"""The reference page of the admin API, made from the routes themselves.

``make docs`` writes it as ``docs/admin-api.md``; a test compares the two.  Imports what the API is made of and asks
none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gateway.admin.audit import AuditTrail
from gateway.admin.limits import AdminLimits
from gateway.admin.openapi import describe
from gateway.admin.routes import api_routes
from gateway.admin.routes_events import EventStreams

_INTRODUCTION: Final = """\
# Admin API

<!-- Made by `make docs` from the routes in gateway/admin; do not edit. -->

For operators, on `operators.listen`. The command line is a client of it.

- **Tokens.** `Authorization: Bearer TOKEN`. The first start makes a token of the scope admin in
  `<runtime_dir>/admin.token`, readable by its owner alone; a file that others can read is refused. Scopes include each
  other: open < read < operate < admin. Too many wrong tokens from one address are answered with 429, whatever comes
  next, until some time has passed.
- **Where from.** A `Host` that is no address of the listener (or `localhost`, or a name in `operators.names`), and an
  `Origin` that is not this very place, are refused with 403. There are no cookies.
- **Answers** are JSON and name every field; `null` is "not known" or "does not apply". Durations end in `_s` (seconds),
  rates in `_tps` (tokens per second), times of day in `_wall` (seconds since 1970). Lists are
  `{"items": [...], "next": ...}`; `next` is the `before` of the following page, `null` on the last one.
- **Errors** have the shape and the codes of [errors.md](errors.md). A refused configuration (422) holds the verdict
  besides: `faults` has a line for each fault, with its place.
- **Events** are Server-Sent Events: `id` grows, `event` is a name of [events.md](events.md), `data` its fields.
  `Last-Event-ID` resumes; an event `gap` tells that some of what was missed is no longer kept. A reader that stops
  reading is dropped.
- **Schemas** of all this: `GET /admin/v1/openapi.json` (OpenAPI 3.1).
"""


def render() -> str:
    """The whole page, as Markdown."""
    document = _document()
    lines = [_INTRODUCTION, "| verb | path | scope | what |", "|---|---|---|---|"]
    operations = [
        (verb.upper(), path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]
    lines += [
        f"| {verb} | `{path}` | {operation['x-scope']} | {operation['summary']} |"
        for verb, path, operation in operations
    ]
    for verb, path, operation in operations:
        lines += _details(f"{verb} {path}", operation)
    return "\n".join(lines).rstrip() + "\n"


def _details(title: str, operation: dict[str, Any]) -> Iterator[str]:
    queries = [parameter for parameter in operation["parameters"] if parameter["in"] == "query"]
    body = operation.get("requestBody")
    if not queries and body is None:
        return
    yield from ("", f"## {title}", "")
    if body is not None:
        yield f"Body: {body['description']}"
    if queries:
        yield from ("| parameter | default | meaning |", "|---|---|---|")
    for parameter in queries:
        default = parameter["schema"].get("default")
        shown = "" if default in {None, ""} else f"`{msgspec.json.encode(default).decode()}`"
        yield f"| `{parameter['name']}` | {shown} | {parameter['description']} |"


def _document() -> dict[str, Any]:
    nobody: Any = None  # the handlers are made and never called
    limits = AdminLimits()
    routes = api_routes(
        nobody,
        nobody,
        EventStreams(nobody, limits),
        metrics_page=nobody,
        description=bytes,
        audit=AuditTrail(lambda _entry: None, float),
        limits=limits,
    )
    document: dict[str, Any] = msgspec.json.decode(describe(routes, version=""))
    return document


if __name__ == "__main__":
    sys.stdout.write(render())
