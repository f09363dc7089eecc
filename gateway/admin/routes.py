"""Every route of the admin API, in the order in which it is described.

The one list: the server serves it, the OpenAPI description and the reference page are made from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.admin.audit import AuditTrail
from gateway.admin.limits import AdminLimits
from gateway.admin.route import Route
from gateway.admin.routes_config import config_routes
from gateway.admin.routes_events import EventStreams
from gateway.admin.routes_fleet import fleet_routes
from gateway.admin.routes_keys import key_routes
from gateway.admin.routes_lora import lora_routes
from gateway.admin.routes_open import open_routes
from gateway.admin.routes_quarantine import quarantine_routes
from gateway.admin.routes_requests import request_routes
from gateway.ports import Adapters, History, Keys, Operations


def api_routes(
    operations: Operations,
    history: History,
    streams: EventStreams,
    *,
    metrics_page: Callable[[], Awaitable[bytes]],
    description: Callable[[], bytes],
    audit: AuditTrail,
    limits: AdminLimits,
    keys: Keys | None = None,
    adapters: Adapters | None = None,
) -> tuple[Route, ...]:
    """The routes over what they ask; nothing is asked before a handler runs."""
    return (
        *open_routes(metrics_page, description),
        *fleet_routes(operations),
        *quarantine_routes(operations, audit),
        *lora_routes(adapters, audit, limits),
        *request_routes(history),
        *config_routes(operations, audit, limits),
        *key_routes(keys, audit, limits),
        *streams.routes(),
    )
