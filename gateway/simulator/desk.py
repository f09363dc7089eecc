"""The answers in progress: from the engine's emissions to the clients' connections.

Shell.  Owner of the registry of answers, of the engine's timer and of the page's tallies.  It decides when an answer
ends; what its bytes are is the answer's business, and which path leads here the face's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.simulator import refusals
from gateway.simulator.driver import Driver, Engine
from gateway.simulator.exposition import Tallies
from gateway.simulator.refusals import Refused
from gateway.simulator.reply import Choice, Reply
from gateway.simulator.request import Emission, SimRequest
from gateway.simulator.wire import Connection


class Respond(Protocol):
    """Sends a whole JSON response on a connection."""

    def __call__(self, connection: Connection, status: int, body: bytes) -> None:
        """Send it."""


class Desk:
    """Owner of the answers; ``respond`` sends whole bodies, ``refuse`` errors.

    ``on_idle`` hears when there may be nothing left to do.
    """

    def __init__(
        self, engine: Engine, *, speed: float, respond: Respond, refuse: Callable[[Connection, Refused], None]
    ) -> None:
        self.driver = Driver(engine, speed=speed, on_emissions=self._emitted)
        self.tallies = Tallies()
        self.is_silent = False
        self.on_idle: Callable[[], None] | None = None
        self._respond = respond
        self._refuse = refuse
        self._answers: dict[int, tuple[Connection, Reply]] = {}

    def __len__(self) -> int:
        """How many requests are being answered."""
        return len(self._answers)

    def prefilling_tokens(self) -> int:
        """Return the prompt tokens of the requests that have no token of an answer yet."""
        return sum(answer.asked.prompt_tokens for _, answer in self._answers.values() if answer.is_prefilling)

    def begin(self, connection: Connection, answer: Reply, *, request: SimRequest) -> None:
        """Hand a request to the engine; raises QueueFull and EngineDead as it does."""
        answer.request_id = self.driver.submit(request)
        self.tallies.asked(n=answer.asked.n)
        self._answers[answer.request_id] = (connection, answer)
        connection.answering = answer

    def gone(self, connection: Connection) -> None:
        """Abort the request of a client that left."""
        answer = connection.answering
        if isinstance(answer, Reply):
            connection.answering = None
            if self._answers.pop(answer.request_id, None) is not None:
                self.driver.abort(answer.request_id)
        self._tell_idle()

    def writable(self, connection: Connection) -> None:
        """Send what gathered while the client did not read."""
        answer = connection.answering
        if isinstance(answer, Reply):
            for choice in answer.choices:
                if choice.pending or (choice.finish and not choice.is_finished):
                    self._send(connection, answer, choice)

    def _emitted(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            entry = self._answers.get(emission.request_id)
            if entry is None:
                continue
            connection, answer = entry
            choice = answer.take(emission)
            if choice is not None and not connection.is_paused:
                self._send(connection, answer, choice)

    def _send(self, connection: Connection, answer: Reply, choice: Choice) -> None:
        if connection.answering is not answer or self.is_silent:
            return
        if answer.asked.stream:
            data = answer.flush(choice)
            if data:
                connection.write(data)
        if answer.is_finished:
            self._ended(connection, answer)

    def _ended(self, connection: Connection, answer: Reply) -> None:
        self._forget(answer)
        if answer.stopped:
            self.driver.abort(answer.request_id)
        for choice in answer.choices:
            if choice.timing is not None:
                self.tallies.ended(
                    choice.timing,
                    prompt_tokens=answer.asked.prompt_tokens + choice.timing.extra_prompt_tokens,
                    tokens=choice.generated,
                    max_tokens=answer.asked.max_tokens,
                )
        if answer.asked.stream:
            connection.finished()
        else:
            self._respond(connection, 200, answer.whole())
        self._tell_idle()

    def _forget(self, answer: Reply) -> None:
        self._answers.pop(answer.request_id, None)

    def _tell_idle(self) -> None:
        if self.on_idle is not None:
            self.on_idle()

    def abort_all(self) -> None:
        """End every answer with finish reason ``abort``, as an engine that is shut down in order does."""
        for connection, answer in list(self._answers.values()):
            data = answer.abort()
            if data:
                connection.write(data)
            self._ended(connection, answer)

    def engine_died(self) -> None:
        """End every answer as vLLM does when EngineCore is gone."""
        self.driver.stop()
        for connection, answer in list(self._answers.values()):
            self._forget(answer)
            if not answer.asked.stream:
                self._refuse(connection, answer.refusal(refusals.engine_dead()))
                continue
            data = answer.broken(refusals.ENGINE_DEAD)
            if data:
                connection.write(data)
                connection.finished()
            else:
                connection.close()
