"""Puts the admin API together: routes behind the gate, errors in one shape, the description of it all.

Built once by `gateway.app`; everything it needs is handed in.  Served by `listen.py`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from gateway.admin.access import Gate
from gateway.admin.answers import error_answer
from gateway.admin.audit import AuditEntry, AuditTrail
from gateway.admin.limits import AdminLimits
from gateway.admin.openapi import describe
from gateway.admin.origins import Origins
from gateway.admin.route import Route, guarded, require_declared
from gateway.admin.routes import api_routes
from gateway.admin.routes_events import MEDIA_TYPE, STARTED, EventStreams
from gateway.admin.tokens import TokenTable
from gateway.core.admission.throttle import Throttle
from gateway.errors import BadRequest, BodyTooLarge, GatewayError, GatewayFault, MethodNotAllowed, UnknownEndpoint
from gateway.ports import Adapters, Feed, History, Keys, Operations

STREAMS: Final = web.AppKey("streams", EventStreams)
"""The open event streams of an application, for those who ask how many there are."""


def build_admin(
    operations: Operations,
    history: History,
    feed: Feed,
    *,
    metrics_page: Callable[[], Awaitable[bytes]],
    tokens: TokenTable,
    audit: Callable[[AuditEntry], None],
    on_fault: Callable[[BaseException], None],
    listen: Iterable[str],
    names: Iterable[str] = (),
    version: str,
    limits: AdminLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
    now_wall: Callable[[], float] = time.time,
    keys: Keys | None = None,
    adapters: Adapters | None = None,
) -> web.Application:
    """The application for the operators' port.

    ``metrics_page`` gives the page of `/metrics`; ``audit`` gets an entry for every change; ``on_fault`` gets each
    defect that a request met (its caller sees only that there was one); ``listen`` are the configured addresses and
    ``names`` further host names under which the port may be asked; ``keys`` are those of clients, where they need one;
    ``adapters`` the LoRA adapters.
    Control calls::

        token = load_or_make_token(runtime_dir)          # RuntimeDirUnusable: exit code 2
        app = build_admin(operations, history, bus, metrics_page=metrics.page, tokens=TokenTable([token]),
                          audit=..., on_fault=..., listen=spec.operators, version=gateway.__version__)
        listener = AdminListener(app, sockets)
        await listener.start()
        ...
        await listener.close()

    Raises RuntimeError when a route has no declared scope.
    """
    bounds = limits or AdminLimits()
    throttle = Throttle(bounds.attempts, bounds.attempt_every_s, peers=bounds.peers)
    gate = Gate(tokens, Origins(listen, names), throttle=throttle, clock=clock)
    streams = EventStreams(feed, bounds)
    description = b""
    routes = api_routes(
        operations,
        history,
        streams,
        metrics_page=metrics_page,
        description=lambda: description,
        audit=AuditTrail(audit, now_wall),
        limits=bounds,
        keys=keys,
        adapters=adapters,
    )
    description = describe(routes, version=version)
    app = web.Application(client_max_size=bounds.body_bytes, middlewares=[_in_one_shape(on_fault)])
    app[STREAMS] = streams
    declared = {_add(app, route, gate) for route in routes}

    async def check_scopes(started: web.Application) -> None:
        # Once more at the start: somebody may have added a route of their own.
        require_declared(started, declared)

    async def end_streams(_app: web.Application) -> None:
        streams.end_all()

    app.on_startup.append(check_scopes)
    app.on_shutdown.append(end_streams)
    return app


def _add(app: web.Application, route: Route, gate: Gate) -> object:
    """Put a route onto the application; returns the handler that runs.  GET answers HEAD, too, save for streams."""
    handler = guarded(route, gate)
    app.router.add_route(route.method, route.path, handler, name=route.name)
    if route.method == hdrs.METH_GET and route.answer != MEDIA_TYPE:
        app.router.add_route(hdrs.METH_HEAD, route.path, handler)
    return handler


def _in_one_shape(on_fault: Callable[[BaseException], None]) -> Middleware:
    """Every error leaves in the one shape, those that aiohttp raises included."""

    @web.middleware
    async def shape(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except GatewayError as error:
            return error_answer(error)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return error_answer(MethodNotAllowed(f"this path answers {allowed}"), allow=allowed)
        except web.HTTPException as error:
            return error_answer(_translated(error))
        except Exception as error:  # noqa: BLE001 - a request's root: the caller learns that we failed, the log why
            on_fault(error)
            return _after_fault(request)

    return shape


def _translated(error: web.HTTPException) -> GatewayError:
    match error.status:
        case 404:
            return UnknownEndpoint("the admin API has no such path")
        case 413:
            return BodyTooLarge("the body is too large")
        case _:
            return BadRequest(error.reason)


def _after_fault(request: web.Request) -> web.StreamResponse:
    started: web.StreamResponse | None = request.get(STARTED)
    if started is None:
        return error_answer(GatewayFault("the gateway failed to answer; its log says more"))
    # The head is out: the only thing left to say is that the stream is broken.
    if request.transport is not None:
        request.transport.abort()
    return started
