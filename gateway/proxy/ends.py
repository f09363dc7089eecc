"""Station settle, put together: the record of a request, what its end says of others, and what its key is charged.

Called once for every accepted request.  Those whose response is made in the background end later; see
:mod:`gateway.proxy.background`.  Must not await.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Outcome
from gateway.proxy.background import Background
from gateway.proxy.gate import Gate
from gateway.proxy.route import Desk
from gateway.proxy.settle import Settler
from gateway.proxy.testimony import Testimony
from gateway.proxy.upstream import Upstreams
from gateway.proxy.visit import Visit


class Ends:
    """One a worker."""

    def __init__(
        self,
        desk: Desk,
        upstreams: Upstreams,
        *,
        gate: Gate,
        settler: Settler,
        testimony: Testimony,
        clock: Callable[[], float],
    ) -> None:
        self._gate = gate
        self._settler = settler
        self._testimony = testimony
        self.background = Background(desk, upstreams, settle=self._settle, clock=clock)

    def of(self, visit: Visit) -> RequestRecord:
        """A request's answer has ended, however it did; returns its record as of now."""
        record = self._settler.record(visit)
        if visit.thing:
            self.background.look(visit.thing)
        kept = self.background.keep(visit, record)
        if not kept or record.outcome is not Outcome.OK:  # of what an engine has only begun nothing good is known
            self._testimony.of_end(visit, record)
        if not kept:
            self._settle(visit, record, 0)
        return record

    def _settle(self, visit: Visit, record: RequestRecord, at_least: int) -> None:
        self._settler.offer(record)
        self._gate.settled(visit, record, at_least=at_least)

    def end_all(self) -> None:
        """The worker ends."""
        self.background.end_all()
