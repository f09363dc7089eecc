from typing import Any

import msgspec
import pytest
from aiohttp import web

from gateway.admin.access import Caller
from gateway.admin.openapi import describe
from gateway.admin.route import Route
from gateway.admin.schemas import ConfigFaults, RequestList, RequestQuery
from gateway.admin.tokens import Scope
from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Outcome
from gateway.ports import ConfigVerdict


async def _handle(_request: web.Request, _caller: Caller) -> web.StreamResponse:
    return web.Response()


ROUTES = [
    Route(
        name="things",
        method="GET",
        path="/things/{name}",
        scope=Scope.READ,
        handle=_handle,
        summary="Things.",
        answer=RequestList,
        query=RequestQuery,
    ),
    Route(name="page", method="GET", path="/page", scope=Scope.OPEN, handle=_handle, summary="", answer="text/plain"),
    Route(
        name="check",
        method="POST",
        path="/things/{name}",
        scope=Scope.ADMIN,
        handle=_handle,
        summary="",
        answer=ConfigVerdict,
        others={422: ConfigFaults},
        body="Some text.",
    ),
]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return msgspec.json.decode(describe(ROUTES, version="1.2.3"))


def test_every_route_is_described_under_its_path_and_verb(document: dict[str, Any]) -> None:
    found = {(path, verb) for path, verbs in document["paths"].items() for verb in verbs}
    assert found == {("/things/{name}", "get"), ("/things/{name}", "post"), ("/page", "get")}
    assert document["info"]["version"] == "1.2.3"


def test_parameters_come_from_the_path_and_the_query_struct(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/things/{name}"]["get"]["parameters"]
    assert [(p["name"], p["in"], p["required"]) for p in parameters] == [
        ("name", "path", True),
        *((name, "query", False) for name in RequestQuery.__struct_fields__),
    ]
    limit = next(p for p in parameters if p["name"] == "limit")
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
    assert limit["description"] == "How many at most."


def test_answers_refer_to_schemas_that_are_there(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    text = msgspec.json.encode(document).decode()
    referred = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert referred == set(schemas)
    assert {"RequestList", "RequestRecord", "StreamSummary", "ErrorBody", "ConfigFaults"} <= referred
    assert schemas["Outcome"]["enum"] == sorted(Outcome)
    responses = document["paths"]["/things/{name}"]["post"]["responses"]
    assert set(responses) == {"200", "422", "default"}


def test_answers_promise_every_field(document: dict[str, Any]) -> None:
    record = document["components"]["schemas"]["RequestRecord"]
    assert set(record["required"]) == set(record["properties"]) == set(RequestRecord.__struct_fields__)
    assert not any("default" in field for field in record["properties"].values())


def test_scopes_and_bodies_are_told(document: dict[str, Any]) -> None:
    things, page = document["paths"]["/things/{name}"], document["paths"]["/page"]
    assert [things["get"]["x-scope"], things["post"]["x-scope"], page["get"]["x-scope"]] == ["read", "admin", "open"]
    assert page["get"]["security"] == []
    assert "security" not in things["get"]
    assert document["security"] == [{"token": []}]
    assert things["post"]["requestBody"]["description"] == "Some text."
    assert "requestBody" not in things["get"]
