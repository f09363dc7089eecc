"""Station settle: what the end of an attempt says of the backend, and of the request itself.

To the desk: who is busy.  To control: failures for passive health, and fingerprints of requests that engines may die
of.  Called by the pipeline; must not decide what becomes of the request.
"""

from __future__ import annotations

from typing import Final

from gateway.core.link.messages import RequestRecord
from gateway.core.routing.backpressure import BUSY_STATUSES, busy_s
from gateway.core.routing.evidence import ENGINE_DEAD
from gateway.core.routing.retry import Attempt
from gateway.core.stream.chunk import ENGINE_DEAD_WORDS
from gateway.core.stream.summary import Ending
from gateway.proxy.forward import Exchange, error_for
from gateway.proxy.route import Desk
from gateway.proxy.settle import FAILURES, TIMEOUTS, Settler
from gateway.proxy.visit import Visit

CLIENT_ERRORS: Final = range(400, 500)
LOST: Final = (Ending.EOF, Ending.RESET)


class Testimony:
    """See the module; one a worker."""

    def __init__(self, desk: Desk, settler: Settler) -> None:
        self._desk = desk
        self._settler = settler

    def of_attempt(self, visit: Visit, exchange: Exchange, attempt: Attempt) -> None:
        """An exchange with the visit's backend has ended."""
        if visit.backend is None:
            return
        backend = visit.backend.name
        if visit.ending in FAILURES or visit.ending in TIMEOUTS:
            lost = visit.ending in LOST and visit.snapshot.policy.poison.deaths > 0
            code = error_for(visit.ending).code
            self._settler.attempt_failed(backend, code, fingerprint=visit.known_by() if lost else "")
        elif visit.ending is Ending.BAD_STATUS and attempt.status not in CLIENT_ERRORS:
            self._settler.attempt_failed(backend, f"status_{attempt.status}")
            if ENGINE_DEAD_WORDS in attempt.answer:
                self._settler.attempt_failed(backend, ENGINE_DEAD, fingerprint=visit.known_by())
        if attempt.status in BUSY_STATUSES and exchange.head is not None:
            self._desk.balance.busy(backend, busy_s(exchange.head.headers))

    def of_end(self, visit: Visit, record: RequestRecord) -> None:
        """The request has its record: does an engine die of it, or is it cleared."""
        told = self._desk.ward.verdict(visit, record)
        if told is not None and visit.backend is not None:
            code, fingerprint = told
            self._settler.attempt_failed(visit.backend.name, code, fingerprint=fingerprint)
