"""Settled requests, from the history store: pages of them, and one by its id.

Awaits the store's answer; holds numbers and names only, since nothing else is stored.
"""

from __future__ import annotations

from aiohttp import hdrs, web

from gateway.admin.access import Caller
from gateway.admin.answers import json_answer
from gateway.admin.route import Route, read_query
from gateway.admin.schemas import RequestList, RequestQuery
from gateway.admin.tokens import Scope
from gateway.errors import NotFound
from gateway.ports import History, StoredRequest


def request_routes(history: History) -> tuple[Route, ...]:
    """Both answer 503 while the store cannot be used."""

    async def requests(request: web.Request, _caller: Caller) -> web.StreamResponse:
        query = read_query(request, RequestQuery)
        found = await history.find(query.filter())
        items = tuple(found[: query.limit])
        following = items[-1].id if len(found) > query.limit else None
        return json_answer(RequestList(items=items, next=following))

    async def one(request: web.Request, _caller: Caller) -> web.StreamResponse:
        stored = await history.get(request.match_info["id"])
        if stored is None:
            raise NotFound("no settled request of that id is remembered", param="id")
        return json_answer(stored)

    return (
        Route(
            name="requests",
            method=hdrs.METH_GET,
            path="/admin/v1/requests",
            scope=Scope.READ,
            handle=requests,
            summary="Settled requests, newest or slowest first.",
            answer=RequestList,
            query=RequestQuery,
        ),
        Route(
            name="request",
            method=hdrs.METH_GET,
            path="/admin/v1/requests/{id}",
            scope=Scope.READ,
            handle=one,
            summary="The newest settled request with this `X-Request-Id`.",
            answer=StoredRequest,
        ),
    )
