"""What is going on: the whole gateway, every backend, one backend.

Answers from what control knows at this moment; asks no backend and waits for nothing.
"""

from __future__ import annotations

from aiohttp import hdrs, web

from gateway.admin.access import Caller
from gateway.admin.answers import json_answer
from gateway.admin.route import Route
from gateway.admin.schemas import BackendList
from gateway.admin.tokens import Scope
from gateway.errors import NotFound
from gateway.ports import BackendReport, Operations, StatusReport


def fleet_routes(operations: Operations) -> tuple[Route, ...]:
    """Status and backends; all answer at once."""

    async def status(_request: web.Request, _caller: Caller) -> web.StreamResponse:
        return json_answer(operations.status())

    async def backends(_request: web.Request, _caller: Caller) -> web.StreamResponse:
        return json_answer(BackendList(items=operations.backends()))

    async def backend(request: web.Request, _caller: Caller) -> web.StreamResponse:
        name = request.match_info["name"]
        report = operations.backend(name)
        if report is None:
            raise NotFound("no backend of that name is configured", param="name")
        return json_answer(report)

    return (
        Route(
            name="status",
            method=hdrs.METH_GET,
            path="/admin/v1/status",
            scope=Scope.READ,
            handle=status,
            summary="The whole gateway in one look.",
            answer=StatusReport,
        ),
        Route(
            name="backends",
            method=hdrs.METH_GET,
            path="/admin/v1/backends",
            scope=Scope.READ,
            handle=backends,
            summary="Every backend.",
            answer=BackendList,
        ),
        Route(
            name="backend",
            method=hdrs.METH_GET,
            path="/admin/v1/backends/{name}",
            scope=Scope.READ,
            handle=backend,
            summary="One backend.",
            answer=BackendReport,
        ),
    )
