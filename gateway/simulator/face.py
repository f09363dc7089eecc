"""The HTTP face: which path answers what, requests into the engine, its emissions out to the clients.

Shell.  Owner of the answers in progress.  Its mood (serving, draining, dead) is set by the process around it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from gateway.simulator import refusals
from gateway.simulator.answer import Answer
from gateway.simulator.asked import Asked, Limits, read_chat, read_completions, to_engine
from gateway.simulator.asked_messages import count_page, read_messages
from gateway.simulator.asked_responses import read_responses
from gateway.simulator.desk import Desk
from gateway.simulator.driver import Engine
from gateway.simulator.exposition import Page
from gateway.simulator.ids import Ids
from gateway.simulator.lora import CHANGES, Adapters
from gateway.simulator.messages import MessagesAnswer
from gateway.simulator.pages import models_page, text_page, token_page
from gateway.simulator.refusals import TOO_MANY_REQUESTS, TOO_MANY_TOKENS, Refused
from gateway.simulator.reply import Manners, Reply
from gateway.simulator.request import EngineDead, QueueFull
from gateway.simulator.responses import ResponsesAnswer
from gateway.simulator.routes import Route, find, response_id
from gateway.simulator.shapes import Form, Identity
from gateway.simulator.spec import ServerSpec
from gateway.simulator.wire import Connection, Request

_JSON: Final = b"application/json"
_METRICS: Final = b"text/plain; version=1.0.0; charset=utf-8"
_VARY: Final = b"vary: Origin\r\n"
# What each API reads and answers with.
_APIS: Final[dict[Route, tuple[Form, Callable[..., Asked], type[Reply]]]] = {
    Route.CHAT: (Form.CHAT, read_chat, Answer),
    Route.COMPLETIONS: (Form.COMPLETIONS, read_completions, Answer),
    Route.RESPONSES: (Form.RESPONSES, read_responses, ResponsesAnswer),
    Route.MESSAGES: (Form.MESSAGES, read_messages, MessagesAnswer),
}


class Mood(StrEnum):
    """What the process lets the face do."""

    SERVING = "serving"
    DRAINING = "draining"  # open requests finish, new ones get 500
    SILENT = "silent"  # the engine is gone and nobody noticed: not a byte any more
    DEAD = "dead"  # the engine is known to be gone


class Face:
    """The application behind every connection."""

    keep_alive_s = 5.0

    def __init__(
        self,
        spec: ServerSpec,
        engine: Engine,
        *,
        speed: float = 1.0,
        draft_tokens: int = 0,
        ids: Ids,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._spec = spec
        self._engine = engine
        self._ids = ids
        self._log = log if spec.access_log else None
        self.desk = Desk(engine, speed=speed, respond=self._respond, refuse=self._refuse)
        self._adapters = Adapters(spec.model, runs=spec.runs_adapters)
        self._limits = Limits(spec.model, spec.max_model_len, adapters=self._adapters.loaded)
        self._manners = Manners(
            stream_interval=spec.stream_interval,
            parses_reasoning=spec.parses_reasoning,
            parses_tools=spec.parses_tools,
            request_metrics=spec.request_metrics,
            prompt_details=spec.prompt_details,
            draft_tokens=draft_tokens,
            spec_metrics=spec.spec_metrics,
        )
        self._page = Page(spec.model, created=time.time())
        self._date = b""
        self._date_until_s = 0.0
        self.connections: set[Connection] = set()
        self.mood = Mood.SERVING

    # -- what the connections call ----------------------------------------------------------------

    def date(self) -> bytes:
        """Return the Date header's value, made anew each second."""
        now_s = time.monotonic()
        if now_s >= self._date_until_s:
            self._date = formatdate(usegmt=True).encode()
            self._date_until_s = now_s + 1.0
        return self._date

    def connected(self, connection: Connection) -> None:
        """Remember the connection."""
        self.connections.add(connection)

    def gone(self, connection: Connection) -> None:
        """Abort the request of a client that left."""
        self.connections.discard(connection)
        self.desk.gone(connection)

    def writable(self, connection: Connection) -> None:
        """Send what gathered while the client did not read."""
        self.desk.writable(connection)

    def answer(self, connection: Connection, request: Request) -> None:
        """Answer a request, at once or as the engine goes on."""
        try:
            self._route(connection, request)
        except Refused as refused:
            self._refuse(connection, refused)

    # -- routes -----------------------------------------------------------------------------------

    def _allowed(self, request: Request) -> Route:
        """Return the route of a request, or refuse it: the key counts before everything else."""
        if request.path.startswith("/v1") and not self._may(request):
            raise refusals.no_key()
        found = find(request.path)
        if found is None or (found[0] in CHANGES and not self._spec.updates_adapters):
            raise refusals.unknown_path()
        route, allowed = found
        if request.method not in allowed.split(", "):
            raise refusals.wrong_method(allowed)
        return route

    def _route(self, connection: Connection, request: Request) -> None:
        route = self._allowed(request)
        match route:
            case Route.CHAT | Route.COMPLETIONS | Route.RESPONSES:
                self._generate(connection, request, route=route)
            case Route.MESSAGES | Route.COUNT:
                self._answer_messages(connection, request, route=route)
            case Route.RESPONSE | Route.CANCEL:
                raise refusals.no_response(response_id(request.path))
            case Route.HEALTH | Route.PING:
                self._respond(connection, 503 if self.mood is Mood.DEAD else 200, b"", content_type=b"")
            case Route.METRICS:
                page = self._page.render(self._engine.counters(), self.desk.tallies)
                self._respond(connection, 200, page, content_type=_METRICS)
            case Route.TOKENIZE | Route.DETOKENIZE:
                if self._is_open():
                    self._respond(connection, 200, self._token_page(request, route))
            case Route.LOAD_ADAPTER | Route.UNLOAD_ADAPTER:
                done = self._adapters.change(route, request.body, _kind(request))
                self._respond(connection, 200, done, content_type=b"")
            case _:
                self._respond(connection, 200, self._small_page(route))

    def _answer_messages(self, connection: Connection, request: Request, *, route: Route) -> None:
        try:
            if route is Route.MESSAGES:
                self._generate(connection, request, route=route)
            elif self._is_open():
                page = count_page(request.body, _kind(request), limits=self._limits)
                self._admit(n=1)
                self._respond(connection, 200, page)
        except Refused as refused:
            raise refused.as_message() from None

    def _token_page(self, request: Request, route: Route) -> bytes:
        page = text_page if route is Route.DETOKENIZE else token_page
        return page(request.body, _kind(request), limits=self._limits)

    def _small_page(self, route: Route) -> bytes:
        match route:
            case Route.VERSION:
                return b'{"version":"%b"}' % self._spec.version.encode()
            case Route.LOAD:
                return b'{"server_load":%d}' % (len(self.desk) if self._spec.tracks_load else 0)
            case _:
                key, adapters = self._ids.hexes(16), self._adapters.loaded
                return models_page(self._spec, now=int(time.time()), key=key, adapters=adapters)

    def _may(self, request: Request) -> bool:
        if not self._spec.api_keys:
            return True
        scheme, _, key = request.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        return scheme.lower() == "bearer" and key in self._spec.api_keys

    def _is_open(self) -> bool:
        """Whether work is taken on; refuses it where that is told, and False where nothing is told any more."""
        match self.mood:
            case Mood.DRAINING:
                raise refusals.draining()
            case Mood.DEAD:
                raise refusals.engine_dead()
            case Mood.SILENT:
                return False
            case Mood.SERVING:
                return True

    def _generate(self, connection: Connection, request: Request, *, route: Route) -> None:
        if not self._is_open():
            return
        form, read, kind = _APIS[route]
        asked = read(request.body, _kind(request), limits=self._limits)
        self._admit(n=asked.n)
        answer = kind(self._identity(form, asked, request), asked, manners=self._manners, hexes=self._ids.hexes)
        try:
            self.desk.begin(connection, answer, request=to_engine(asked))
        except QueueFull:
            self.desk.tallies.rejections["max_num_queued_reqs"] += 1
            raise refusals.queue_full(TOO_MANY_REQUESTS) from None
        except EngineDead:
            raise refusals.engine_dead() from None
        if asked.stream:
            connection.begin_stream(extra=self._extra(connection))
            opening = answer.opening()
            if opening:
                connection.write(opening)
            self._note(connection, 200)

    def _identity(self, form: Form, asked: Asked, request: Request) -> Identity:
        if form is Form.RESPONSES:
            key = (asked.echo.request_id if asked.echo else "") or f"resp_{self._ids.hexes(16)}"
        else:
            key = request.headers.get(b"x-request-id", b"").decode("latin-1") or self._ids.hexes(16)
        return Identity(form, key, int(time.time()), asked.model or self._spec.model, self._spec.fingerprint)

    def _admit(self, *, n: int) -> None:
        """Refuse what would exceed a limit: of requests that run or wait, of prompt tokens without an answer yet."""
        counters = self._engine.counters()
        most = self._spec.max_queued_requests
        if most is not None and counters.running + counters.waiting + n > most:
            self.desk.tallies.rejections["max_num_queued_reqs"] += 1
            raise refusals.queue_full(TOO_MANY_REQUESTS)
        most = self._spec.max_queued_tokens
        if most is not None and self.desk.prefilling_tokens() >= most:
            self.desk.tallies.rejections["max_num_queued_tokens"] += 1
            raise refusals.queue_full(TOO_MANY_TOKENS)

    def _extra(self, connection: Connection, *, has_vary: bool = True) -> bytes:
        extra = _VARY if has_vary else b""
        if self._spec.request_id_headers and connection.request is not None:
            given = connection.request.headers.get(b"x-request-id") or self._ids.hexes(32).encode()
            extra += b"x-request-id: " + given + b"\r\n"
        return extra

    def _refuse(self, connection: Connection, refused: Refused) -> None:
        self._respond(connection, refused.status, refused.body, extra=refused.header, has_vary=refused.has_vary)

    def _respond(
        self,
        connection: Connection,
        status: int,
        body: bytes,
        *,
        content_type: bytes = _JSON,
        extra: bytes = b"",
        has_vary: bool = True,
    ) -> None:
        self._note(connection, status)
        connection.respond(
            status, body, content_type=content_type, before=extra, extra=self._extra(connection, has_vary=has_vary)
        )

    def _note(self, connection: Connection, status: int) -> None:
        if self._log is not None and connection.request is not None:
            asked = f"{connection.request.method} {connection.request.path} HTTP/1.1"
            self._log(f'INFO:     {connection.peer} - "{asked}" {status} {HTTPStatus(status).phrase}')

    # -- what the process calls -------------------------------------------------------------------

    def engine_died(self) -> None:
        """The engine is known to be gone: in-band errors, 500 for new requests, 503 of /health."""
        self.mood = Mood.DEAD
        self.desk.engine_died()

    def fall_silent(self) -> None:
        """The engine is gone and its end was not told: no byte more to anyone who waits."""
        self.mood = Mood.SILENT
        self.desk.is_silent = True
        self.desk.driver.stop()

    def close_idle(self) -> None:
        """Close the connections on which nothing is being answered."""
        for connection in list(self.connections):
            if connection.is_idle:
                connection.close()


def _kind(request: Request) -> bytes:
    return request.headers.get(b"content-type", b"")
