"""What the operators' port tells without a token, and the description of the rest.

Health and metrics are asked for by machines that hold no secret; they hold numbers and names only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from gateway.admin.access import Caller
from gateway.admin.answers import bytes_answer, json_answer
from gateway.admin.route import Route
from gateway.admin.schemas import Health
from gateway.admin.tokens import Scope

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def open_routes(metrics_page: Callable[[], Awaitable[bytes]], description: Callable[[], bytes]) -> tuple[Route, ...]:
    """Health, metrics, and the OpenAPI description (which takes a token, like everything under `/admin`)."""

    async def health(_request: web.Request, _caller: Caller) -> web.StreamResponse:
        return json_answer(Health())

    async def metrics(_request: web.Request, _caller: Caller) -> web.StreamResponse:
        return bytes_answer(await metrics_page(), METRICS_TYPE)

    async def openapi(_request: web.Request, _caller: Caller) -> web.StreamResponse:
        return bytes_answer(description(), "application/json")

    return (
        Route(
            name="health",
            method=hdrs.METH_GET,
            path="/health",
            scope=Scope.OPEN,
            handle=health,
            summary="The control process answers.",
            answer=Health,
        ),
        Route(
            name="metrics",
            method=hdrs.METH_GET,
            path="/metrics",
            scope=Scope.OPEN,
            handle=metrics,
            summary="Every metric, in Prometheus' text format.",
            answer="text/plain",
        ),
        Route(
            name="openapi",
            method=hdrs.METH_GET,
            path="/admin/v1/openapi.json",
            scope=Scope.READ,
            handle=openapi,
            summary="This description.",
            answer="application/json",
        ),
    )
