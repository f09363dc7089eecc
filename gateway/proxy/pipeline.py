"""The request's way in one screen: admit -> route -> forward -> relay (+ tap) -> settle.

Owner of a visit from its first byte to its record.  Each line of :meth:`Pipeline._serve` is a station; what a station
does stands in the module of its name.  An exchange that has ended is tried elsewhere only when nothing of the request
was accepted; after the client's first byte never.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping

from aiohttp import web

from gateway.core.request.body import may_inject_usage, renamed
from gateway.core.routing.endpoints import Endpoint, Serves
from gateway.core.routing.headers import upstream_headers
from gateway.core.routing.retry import may_try_elsewhere
from gateway.core.stream.delivery.mode import Delivery
from gateway.core.stream.summary import Dialect, Ending, Outcome
from gateway.errors import ConnectFailed, GatewayError, GatewayFault, MethodNotAllowed, NothingServing, ShuttingDown
from gateway.proxy import envelope
from gateway.proxy.admit import read_body, read_head
from gateway.proxy.attempt import attempt_of, held_answer, request_bytes
from gateway.proxy.choose import RelayChooser, own_headers
from gateway.proxy.comments import comments_for
from gateway.proxy.deliver import settle_delivery
from gateway.proxy.ends import Ends
from gateway.proxy.forward import LEFT, Exchange, error_for
from gateway.proxy.gate import Gate
from gateway.proxy.lease import Lease
from gateway.proxy.ours import answer_ourselves
from gateway.proxy.owners import Owners
from gateway.proxy.route import RETRY_AFTER_S, Desk
from gateway.proxy.settle import Settler
from gateway.proxy.side import SideShelf
from gateway.proxy.side_door import SideDoor
from gateway.proxy.testimony import Testimony
from gateway.proxy.upstream import Upstreams
from gateway.proxy.usage import UsageDesk
from gateway.proxy.visit import Visit
from gateway.proxy.wire import Answered, ClientWire

log = logging.getLogger("gateway.pipeline")


class Pipeline:
    """One a worker.  Owner of the exchanges that are open."""

    def __init__(
        self,
        *,
        desk: Desk,
        gate: Gate,
        usage: UsageDesk,
        upstreams: Upstreams,
        settler: Settler,
        endpoints: Mapping[str, Endpoint],
        version: str,
        sides: SideShelf,
        side_door: SideDoor,
        clock: Callable[[], float],
    ) -> None:
        self._desk = desk
        self._gate = gate
        self._usage = usage
        self._upstreams = upstreams
        self._settler = settler
        self._testimony = Testimony(desk, settler)
        self._ends = Ends(desk, upstreams, gate=gate, settler=settler, testimony=self._testimony, clock=clock)
        self._endpoints = endpoints
        self._version = version
        self._sides = sides
        self._side_door = side_door
        self._clock = clock
        self._owners = Owners(desk, upstreams)
        self._open: set[Exchange] = set()
        self._id_prefix = os.urandom(6).hex()
        self._count = itertools.count(1)

    async def handle(self, request: web.BaseRequest, wire: ClientWire) -> Answered:
        """Serve one request of a client, to whatever end."""
        visit = Visit(
            accepted=self._clock(),
            accepted_wall=time.time(),
            snapshot=self._desk.snapshot,
            request_id=f"{next(self._count):x}-{self._id_prefix}",  # told apart by how it begins
        )
        engine = True
        try:
            endpoint = read_head(visit, request, endpoints=self._endpoints)
            engine = endpoint.serves is Serves.ENGINE
            self._gate.identify(visit, request, endpoint)
            if engine and endpoint.dialect is not None:
                await self._serve(visit, request, wire, dialect=endpoint.dialect, endpoint=endpoint)
            else:
                await self._serve_other(visit, wire, endpoint)
        except GatewayError as error:
            self._refuse(visit, wire, error)
        except asyncio.CancelledError:
            ended = visit.exchange.ending if visit.exchange is not None else None
            visit.ending = ended or (Ending.SHUTDOWN if self._desk.stopping and wire.open else Ending.CLIENT_GONE)
            raise
        except Exception:  # the root of the request's task: a defect of ours must still be answered and settled
            log.exception("request.defect", extra={"request_id": visit.request_id})
            self._refuse(visit, wire, GatewayFault("the gateway has a defect; the request was not completed"))
        finally:
            if engine:
                record = self._ends.of(visit)
                if visit.side is not None:
                    self._sides.finish(visit.side, well=record.outcome is Outcome.OK)
            visit.forget()
        keep_alive = visit.keep_alive and wire.open and not self._desk.stopping
        # Answers to a client that never reads must not pile up, nor keep a connection open that is to be closed.
        if not await wire.drained(visit.snapshot.policy.timers.client_write_s, whole=not keep_alive):
            wire.cut()
        return Answered(keep_alive=keep_alive)

    async def _serve(
        self, visit: Visit, request: web.BaseRequest, wire: ClientWire, *, dialect: Dialect, endpoint: Endpoint
    ) -> None:
        if self._desk.stopping and wire.requests > 1:  # a first one was on its way before the client could know
            raise ShuttingDown("the gateway is shutting down", retry_after_s=RETRY_AFTER_S)
        with self._desk.enter():
            intake = self._desk.intake
            await read_body(visit, request, endpoint=endpoint, dialect=dialect, intake=intake, clock=self._clock)
            if endpoint.dialect is Dialect.RESPONSES:
                await self._owners.assign(visit, endpoint)
            self._admit(visit, request, dialect)
            self._ends.background.check(visit, endpoint)
            visit.comments = comments_for(visit, wire, endpoint)
            if visit.key is not None:
                await self._gate.enter(visit, visit.key)
            while True:
                with self._gate.try_lease(visit) or await self._gate.wait(visit) as lease:
                    visit.tried.append(lease.backend.name)
                    if await self._attempt(visit, wire, lease, dialect=dialect, endpoint=endpoint):
                        return

    def _admit(self, visit: Visit, request: web.BaseRequest, dialect: Dialect) -> None:
        body = visit.body
        if body is None:
            raise GatewayFault("a request was admitted without its body")
        visit.snapshot = self._desk.snapshot
        model = self._desk.meant_by(body.model)
        self._gate.ask(visit, request, names=(body.model, model))
        if model != body.model:
            body = visit.body = renamed(body, model)
        visit.model, visit.shape = body.model, body.shape
        visit.pool = visit.pool or self._desk.pool_for(body.model)
        if self._desk.balance.by_session:
            visit.session = self._desk.balance.session_of(visit.pool, body, request.headers.get("X-Session-Id"))
        settle_delivery(visit, dialect, key_default=None if visit.key is None else visit.key.defaults.reasoning)
        if visit.delivery is Delivery.SIDE:
            visit.side = self._sides.open(visit.key_id, visit.snapshot.policy.side)
        if self._desk.ward.watching:  # not only when it is its turn: it shall keep nobody waiting
            self._desk.ward.check(visit)
        visit.injected = may_inject_usage(body, dialect)
        visit.extra_headers = upstream_headers(request.headers.items())
        visit.queued = visit.admitted = self._clock()

    def _has_other(self, visit: Visit) -> bool:
        if visit.only is not None:
            return False
        return self._desk.has_other(pool=visit.pool, model=visit.model, tried=visit.tried)

    async def _attempt(
        self, visit: Visit, wire: ClientWire, lease: Lease, *, dialect: Dialect, endpoint: Endpoint
    ) -> bool:
        """One attempt; True when the request is over, False when another backend may be tried."""
        if self._desk.ward.watching:
            self._desk.ward.check(visit)
        backend = visit.begin_attempt(lease.backend)
        timers, target = visit.snapshot.policy.timers, self._upstreams.target(backend)
        visit.named = self._owners.witness(visit, endpoint, backend)
        try:
            connection = await self._upstreams.connect(
                target, timeout_s=timers.connect_s, idle_s=timers.upstream_idle_s
            )
        except ConnectFailed as error:
            self._desk.suspect(backend.name)
            return self._failed_to_connect(visit, error)
        chooser = RelayChooser(
            visit,
            wire,
            backend=backend,
            stopping=lambda: self._desk.is_stopping(backend.name),
            free_in_s=lambda: self._desk.free_in_s(pool=visit.pool, model=visit.model),
            dialect=dialect,
            clock=self._clock,
        )
        visit.reached = True
        exchange = visit.exchange = Exchange(
            connection,
            wire,
            choose=chooser,
            timers=timers,
            pulses=self._desk.pulses(backend.name),
            clock=self._clock,
        )
        self._open.add(exchange)
        try:
            exchange.start(request_bytes(visit, target, endpoint))
            visit.ending = await exchange.done
            self._owners.learn(visit)
        except asyncio.CancelledError:
            exchange.finish(Ending.CLIENT_GONE)
            raise
        finally:
            self._open.discard(exchange)
            visit.alone = lease.alone
            exchange.let_go(self._upstreams)
        return self._conclude(visit, exchange, dialect=dialect)

    def _failed_to_connect(self, visit: Visit, error: ConnectFailed) -> bool:
        """Try the next one; when there is none the client is told why this one could not be reached."""
        visit.ending = Ending.CONNECT_FAILED
        visit.error = error
        if visit.backend is not None:
            self._settler.attempt_failed(visit.backend.name, error.code)
        if self._gate.may_hold(visit):
            visit.tried.pop()  # it is passed over for a moment, and may be the one that comes back
        elif not self._has_other(visit):
            raise NothingServing(error.message, retry_after_s=self._desk.away_s) from error
        return False

    def _conclude(self, visit: Visit, exchange: Exchange, *, dialect: Dialect) -> bool:
        """What an exchange that ended means for the request; see :meth:`_attempt`."""
        stopping = visit.backend is not None and self._desk.is_stopping(visit.backend.name)
        attempt = attempt_of(visit, exchange, dialect=dialect, stopping=stopping)
        visit.ending = attempt.ending
        self._testimony.of_attempt(visit, exchange, attempt)
        if may_try_elsewhere(attempt) and self._has_other(visit):
            return False
        held = held_answer(exchange)
        if held is not None and attempt.ending in (Ending.COMPLETE, Ending.BAD_STATUS):
            held.release()
        elif attempt.ending not in LEFT:
            error = error_for(attempt.ending)
            if not attempt.sent_to_client:
                raise error
            visit.error = exchange.relay.told if exchange.relay is not None else error
        return True

    async def _serve_other(self, visit: Visit, wire: ClientWire, endpoint: Endpoint) -> None:
        if endpoint.serves is Serves.REASONING:
            visit.keep_alive = visit.keep_alive and visit.http_1_1
        headers = self._lines(visit)
        if endpoint.serves is Serves.USAGE:
            await self._usage.serve(visit, wire, headers=headers)
        elif endpoint.serves is Serves.REASONING:
            wait_s, chunked = visit.snapshot.policy.timers.client_write_s, visit.http_1_1
            await self._side_door.serve(
                visit.thing, visit.key_id, wire, headers=headers, chunked=chunked, patience_s=wait_s
            )
        else:
            with_body = visit.method != "HEAD"
            may_use = visit.key.may_use if visit.key is not None else None
            wire.send(
                answer_ourselves(
                    endpoint, self._desk, version=self._version, headers=headers, with_body=with_body, may_use=may_use
                )
            )

    def _refuse(self, visit: Visit, wire: ClientWire, error: GatewayError) -> None:
        """Answer with our own error: an event where the stream has begun; of a cut answer the connection ends."""
        visit.error = error
        self._gate.refused(visit, error)
        relay = visit.exchange.relay if visit.exchange is not None else None
        if relay is not None and not relay.unsent:
            wire.cut()
            return
        if visit.begun and visit.comments is not None:
            visit.comments.tell(error)
            return
        if error.status == 413 or error.status == 408:  # noqa: PLR1714  (the rest of the body is not read)
            visit.keep_alive = False
        visit.status = error.status
        dialect = visit.endpoint.error_dialect if visit.endpoint is not None else None
        lines = self._lines(visit)
        if visit.endpoint is not None and isinstance(error, MethodNotAllowed):
            lines += b"Allow: %b\r\n" % ", ".join(sorted(visit.endpoint.methods)).encode("ascii")
        answer = envelope.error_response(error, dialect=dialect, headers=lines, with_body=visit.method != "HEAD")
        visit.response_bytes = len(answer)
        wire.send(answer)

    def _lines(self, visit: Visit) -> bytes:
        keep_alive = visit.keep_alive and not self._desk.stopping
        return own_headers(visit, None) + envelope.connection_line(keep_alive=keep_alive, http_1_1=visit.http_1_1)

    def end_all(self) -> None:
        """Shutdown's deadline: end every open exchange, each with an error that its client can read."""
        self._gate.end_all()
        for exchange in list(self._open):
            exchange.finish(Ending.SHUTDOWN)
        self._ends.end_all()
