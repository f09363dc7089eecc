"""LoRA adapters: what is loaded where, and orders to load or unload one, told to every backend of its pool.

A request names the adapter and nothing else; where it lies stands in the configuration.  An order is answered when
every backend has: 200 when all are as ordered, 207 when some are, 502 when none is, in the same shape.  The order
holds in any case, and each stands in the audit trail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiohttp import hdrs, web
from msgspec import Struct

from gateway.admin.access import Caller
from gateway.admin.answers import json_answer
from gateway.admin.audit import AuditResult, AuditTrail
from gateway.admin.bodies import read_text
from gateway.admin.limits import AdminLimits
from gateway.admin.route import Route, read_query
from gateway.admin.schemas import AdapterList, AdapterQuery, NoQuery
from gateway.admin.tokens import Scope
from gateway.core.routing.adapters import DONE, AdapterOutcome
from gateway.errors import BadRequest, GatewayError, NotFound
from gateway.ports import Adapters

SOME: Final = 207
NONE: Final = 502
_OTHERS: Final[Mapping[int, type[Struct]]] = MappingProxyType({SOME: AdapterOutcome, NONE: AdapterOutcome})


def lora_routes(adapters: Adapters | None, audit: AuditTrail, limits: AdminLimits) -> tuple[Route, ...]:
    """Listing takes the scope read, orders take operate."""
    do = _Handlers(adapters, audit, limits)
    return (
        Route(
            name="lora",
            method=hdrs.METH_GET,
            path="/admin/v1/lora",
            scope=Scope.READ,
            handle=do.listed,
            summary="Every configured LoRA adapter: wanted or not, and where it is loaded.",
            answer=AdapterList,
        ),
        Route(
            name="lora_load",
            method=hdrs.METH_POST,
            path="/admin/v1/lora/{pool}/{name}/load",
            scope=Scope.OPERATE,
            handle=do.load,
            summary="Have every backend of the pool load it, now and whenever one lacks it. 207: some have, 502: none.",
            answer=AdapterOutcome,
            others=_OTHERS,
            query=AdapterQuery,
        ),
        Route(
            name="lora_unload",
            method=hdrs.METH_POST,
            path="/admin/v1/lora/{pool}/{name}/unload",
            scope=Scope.OPERATE,
            handle=do.unload,
            summary="Take it from clients, then from every backend of the pool. 207: some have let go of it, 502: none.",
            answer=AdapterOutcome,
            others=_OTHERS,
        ),
    )


class _Handlers:
    """What each route does."""

    def __init__(self, adapters: Adapters | None, audit: AuditTrail, limits: AdminLimits) -> None:
        self._adapters = adapters
        self._audit = audit
        self._limits = limits

    @property
    def known(self) -> Adapters:
        if self._adapters is None:
            raise NotFound("there are no LoRA adapters here")
        return self._adapters

    async def listed(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        return json_answer(AdapterList(items=self.known.reports()))

    async def load(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        reload = read_query(request, AdapterQuery).reload
        pool, name = request.match_info["pool"], request.match_info["name"]
        return await self._order(request, caller, "lora.load", order=lambda: self.known.load(pool, name, reload=reload))

    async def unload(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        read_query(request, NoQuery)
        pool, name = request.match_info["pool"], request.match_info["name"]
        return await self._order(request, caller, "lora.unload", order=lambda: self.known.unload(pool, name))

    async def _order(
        self,
        request: web.Request,
        caller: Caller,
        action: str,
        *,
        order: Callable[[], Awaitable[AdapterOutcome]],
    ) -> web.StreamResponse:
        try:
            await self._check_empty(request)
            outcome = await order()
        except GatewayError as error:
            self._audit.note(caller, action, result=AuditResult.REFUSED, details=(_about(request, error.message),))
            raise
        except BaseException as error:
            details = (_about(request, type(error).__name__),)
            self._audit.note(caller, action, result=AuditResult.FAILED, details=details)
            raise
        # The order holds whatever backends said to it, so it was applied.
        details = (f"pool {outcome.pool}: {outcome.summary}",)
        self._audit.note(caller, action, result=AuditResult.APPLIED, details=details)
        return json_answer(outcome, status=_status(outcome))

    async def _check_empty(self, request: web.Request) -> None:
        """Raises BadRequest for a body that says something: whoever sends a path shall not think that it counted."""
        if (await read_text(request, self._limits)).strip() not in {"", "{}"}:
            raise BadRequest("nothing is taken here but the adapter's name: its path stands in the configuration")


def _about(request: web.Request, trouble: str) -> str:
    """A trouble, and which adapter was meant."""
    return f"adapter {request.match_info['name'][:64]} of pool {request.match_info['pool'][:64]}: {trouble}"


def _status(outcome: AdapterOutcome) -> int:
    if outcome.complete:
        return 200
    return SOME if any(it.result in DONE for it in outcome.backends) else NONE
