"""Requests that are refused since engines died of them: which, until when, and letting one in again.

They are known by the fingerprint of their body; nobody can see what was asked.
"""

from __future__ import annotations

from aiohttp import hdrs, web

from gateway.admin.access import Caller
from gateway.admin.answers import json_answer
from gateway.admin.audit import AuditResult, AuditTrail
from gateway.admin.route import Route
from gateway.admin.schemas import QuarantineList, Released
from gateway.admin.tokens import Scope
from gateway.errors import NotFound
from gateway.ports import Operations


def quarantine_routes(operations: Operations, audit: AuditTrail) -> tuple[Route, ...]:
    """Both answer at once; letting one in stands in the audit trail."""

    async def listed(_request: web.Request, _caller: Caller) -> web.StreamResponse:
        return json_answer(QuarantineList(items=operations.quarantined()))

    async def release(request: web.Request, caller: Caller) -> web.StreamResponse:
        fingerprint = request.match_info["fingerprint"]
        if not operations.release(fingerprint):
            raise NotFound("no request of that fingerprint is quarantined", param="fingerprint")
        audit.note(caller, "quarantine.release", result=AuditResult.APPLIED, details=(fingerprint,))
        return json_answer(Released(fingerprint=fingerprint))

    return (
        Route(
            name="quarantine",
            method=hdrs.METH_GET,
            path="/admin/v1/quarantine",
            scope=Scope.READ,
            handle=listed,
            summary="Requests that are refused since backends died with them in flight, by fingerprint.",
            answer=QuarantineList,
        ),
        Route(
            name="quarantine_release",
            method=hdrs.METH_DELETE,
            path="/admin/v1/quarantine/{fingerprint}",
            scope=Scope.OPERATE,
            handle=release,
            summary="Let requests with this fingerprint in again.",
            answer=Released,
        ),
    )
