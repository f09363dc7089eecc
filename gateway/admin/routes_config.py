"""The configuration: check a text or the file without applying it, or read the file again and apply it.

Both answer 200, or 422 with every fault; a reload is all or nothing and stands in the audit trail either way.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aiohttp import hdrs, web
from msgspec import Struct

from gateway.admin.access import Caller
from gateway.admin.answers import json_answer, mark_error
from gateway.admin.audit import AuditResult, AuditTrail
from gateway.admin.bodies import read_text
from gateway.admin.limits import AdminLimits
from gateway.admin.route import Route
from gateway.admin.schemas import ConfigFaults, ErrorDetail
from gateway.admin.tokens import Scope
from gateway.errors import ConfigError, GatewayError
from gateway.ports import ConfigVerdict, Operations

_FAULTS: Final[Mapping[int, type[Struct]]] = MappingProxyType({422: ConfigFaults})


def config_routes(operations: Operations, audit: AuditTrail, limits: AdminLimits) -> tuple[Route, ...]:
    """Reload takes the scope admin: the file decides where requests go.  Checking a text changes nothing."""

    async def reload(_request: web.Request, caller: Caller) -> web.StreamResponse:
        try:
            verdict = await operations.reload()
        except GatewayError as error:
            audit.note(caller, "config.reload", result=AuditResult.FAILED, details=(error.message,))
            raise
        except BaseException as error:
            audit.note(caller, "config.reload", result=AuditResult.FAILED, details=(type(error).__name__,))
            raise
        result = AuditResult.REFUSED if verdict.faults else AuditResult.APPLIED
        audit.note(caller, "config.reload", result=result, details=verdict.faults or verdict.changes)
        return _verdict_answer(verdict)

    async def check(request: web.Request, _caller: Caller) -> web.StreamResponse:
        text = await read_text(request, limits)
        return _verdict_answer(await operations.check(text or None))

    return (
        Route(
            name="config_reload",
            method=hdrs.METH_POST,
            path="/admin/v1/config/reload",
            scope=Scope.ADMIN,
            handle=reload,
            summary="Read the configuration file again and apply its runtime part, all or nothing.",
            answer=ConfigVerdict,
            others=_FAULTS,
        ),
        Route(
            name="config_check",
            method=hdrs.METH_POST,
            path="/admin/v1/config/check",
            scope=Scope.READ,
            handle=check,
            summary="Find every fault of a configuration without applying it.",
            answer=ConfigVerdict,
            others=_FAULTS,
            body="The text of a configuration file (UTF-8, whatever its media type); empty: the configured file.",
        ),
    )


def _verdict_answer(verdict: ConfigVerdict) -> web.Response:
    if not verdict.faults:
        return json_answer(verdict)
    error = ConfigError("\n".join(verdict.faults))
    detail = ErrorDetail(message=error.message, type=error.type, param=None, code=error.code)
    faults = ConfigFaults(
        error=detail,
        applied=verdict.applied,
        faults=verdict.faults,
        changes=verdict.changes,
        needs_restart=verdict.needs_restart,
    )
    answer = json_answer(faults, status=error.status)
    mark_error(answer, error)
    return answer
