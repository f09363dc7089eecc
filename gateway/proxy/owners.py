"""Station route, for things that one backend holds: which backend has the response that a request is about.

Owner of the worker's memory of them.  A request for a stored response, or one that goes on from it, must go to the
engine that made it.  What this worker does not know, since another one made it or it was long ago, is asked of every
backend that serves: a GET without effect, of which only the status is read.  Where clients have keys, a response is
there for the key that made it and for no other.  Must not choose among backends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from gateway import aio
from gateway.core.request.body import is_stored, previous_response
from gateway.core.request.response_id import is_response_of
from gateway.core.routing.backend import BackendState
from gateway.core.routing.endpoints import ID, Endpoint
from gateway.core.routing.owners import OwnerMemory
from gateway.core.routing.select import candidates
from gateway.core.routing.snapshot import BackendView, TimerPolicy
from gateway.core.stream.summary import Dialect
from gateway.errors import NotFound, NothingServing
from gateway.proxy.answer import AnswerRelay
from gateway.proxy.asking import FOUND, UNKNOWN, ask_for_response
from gateway.proxy.route import Desk
from gateway.proxy.upstream import Upstreams
from gateway.proxy.visit import Visit

SIDE_BY_SIDE: Final = 16
"""Backends that are asked at a time."""


class Owners:
    """One a worker."""

    def __init__(self, desk: Desk, upstreams: Upstreams) -> None:
        self._desk = desk
        self._upstreams = upstreams
        self.memory = OwnerMemory(desk.snapshot.policy.limits.owned_responses)

    async def assign(self, visit: Visit, endpoint: Endpoint) -> None:
        """Bind ``visit`` to the one backend that can answer it, where there is only one.

        Raises NotFound where no backend knows the thing, NothingServing where it cannot be had at present.
        """
        if endpoint.owned:
            self._check_maker(visit, visit.thing, param="response_id")
            visit.only = await self._owner(visit, visit.thing, self._serving())
            if visit.only is None:
                raise _unknown("response_id")
            visit.pool = visit.only.pool
        elif endpoint.dialect is Dialect.RESPONSES and visit.body is not None:
            before = previous_response(visit.body)
            if before:
                self._check_maker(visit, before, param="previous_response_id")
            if ID.fullmatch(before):
                model = self._desk.meant_by(visit.body.model)
                among = candidates(self._desk.snapshot, self._desk.pool_for(model), model, tried=())
                if len(among) > 1:  # one that nobody knows is the engine's to refuse
                    visit.only = await self._owner(visit, before, among)

    def _check_maker(self, visit: Visit, thing: str, *, param: str) -> None:
        """Raise NotFound for what another key has made, before anybody is asked: as for what nobody has made.

        An engine that did not take the id which it was given is remembered to have made its own for the key.
        """
        key = visit.key
        if key is not None and not is_response_of(thing, key.id) and self.memory.maker(thing) != key.id:
            raise _unknown(param)

    def witness(self, visit: Visit, endpoint: Endpoint, backend: BackendView) -> Callable[[str], None] | None:
        """What to call with the id of the response that ``backend`` makes; None where nobody will ask for it again."""
        if endpoint.dialect is not Dialect.RESPONSES or endpoint.owned or visit.body is None:
            return None
        return partial(self._made, visit, backend=backend.name) if is_stored(visit.body) else None

    def learn(self, visit: Visit) -> None:
        """Take the id out of an answer that came in one piece."""
        relay = visit.exchange.relay if visit.exchange is not None else None
        if visit.named is None or not isinstance(relay, AnswerRelay) or (body := relay.copy()) is None:
            return
        try:
            visit.named(_NAMED.decode(body).id)
        except (msgspec.MsgspecError, RecursionError):
            return

    def _made(self, visit: Visit, thing: str, *, backend: str) -> None:
        visit.made = thing
        self._note(thing, backend=backend, key_id=visit.key_id)

    def _note(self, thing: str, *, backend: str, key_id: str) -> None:
        if ID.fullmatch(thing):
            self.memory.limit = self._desk.snapshot.policy.limits.owned_responses
            self.memory.note(thing, backend, key_id=key_id)

    def _serving(self) -> list[BackendView]:
        return [b for b in self._desk.snapshot.backends if b.state is BackendState.SERVING]

    async def _owner(self, visit: Visit, thing: str, among: Sequence[BackendView]) -> BackendView | None:
        """The backend of ``among`` that holds ``thing``."""
        name = self.memory.owner(thing)
        for backend in among:
            if backend.name == name:
                return backend
        if any(backend.name == name for backend in self._desk.snapshot.backends):
            raise NothingServing("the backend that holds this response is not serving", retry_after_s=self._desk.away_s)
        found = await self._ask(thing, among, visit.snapshot.policy.timers)
        if found is not None:
            self._note(thing, backend=found.name, key_id=visit.key_id)
        return found

    async def _ask(self, thing: str, among: Sequence[BackendView], timers: TimerPolicy) -> BackendView | None:
        """The first of ``among`` that knows ``thing``.  Raises NothingServing where one that may have it is silent."""
        silent = not among
        for start in range(0, len(among), SIDE_BY_SIDE):
            asked = {
                aio.spawn(self._status(backend, thing, timers), name=f"ask-{backend.name}"): backend
                for backend in among[start : start + SIDE_BY_SIDE]
            }
            try:
                for done in asyncio.as_completed(asked):
                    await done
                    found = [b for task, b in asked.items() if task.done() and task.result() in FOUND]
                    if found:
                        return found[0]
            finally:
                for task in asked:
                    task.cancel()
            silent = silent or any(task.result() != UNKNOWN for task in asked)
        if silent:
            raise NothingServing(
                "a backend that may hold this response cannot be asked", retry_after_s=self._desk.away_s
            )
        return None

    async def _status(self, backend: BackendView, thing: str, timers: TimerPolicy) -> int:
        """The status with which ``backend`` answers a question for ``thing``; 0 where it does not."""
        status, _ = await ask_for_response(self._upstreams, backend, thing, timers=timers)
        return status


def _unknown(param: str) -> NotFound:
    return NotFound("no backend knows a response of that id", param=param)


class _Named(msgspec.Struct, gc=False):
    id: str = ""


_NAMED: Final = msgspec.json.Decoder(_Named)
