"""Station admit: who may come in, when it is each one's turn, and what it is charged in the end.

Puts together the keyring, the quotas of keys and the waiting room for the pipeline, and says to control what this
worker holds of every shared limit.  Where no client has a key and no pool has a line, nothing here is more than a look.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web

from gateway.core.admission.keys import MAX_PRIORITY, Key, check_model
from gateway.core.admission.ledger import Claim, ShareTable
from gateway.core.link.messages import ControlMessage, NewKeys, NewSnapshot, RequestRecord, Shares
from gateway.core.routing.endpoints import Endpoint
from gateway.errors import BadRequest, GatewayError
from gateway.proxy.keyring import Keyring
from gateway.proxy.lease import Lease
from gateway.proxy.quotas import Quotas
from gateway.proxy.route import Desk
from gateway.proxy.visit import Visit
from gateway.proxy.waiting import WaitingRoom
from gateway.refusals import KeyForbidden, QuotaExceeded

MAX_DEADLINE_S: Final = 86_400.0

REFUSALS: Final = frozenset(
    {
        "invalid_api_key",
        "key_forbidden",
        "too_many_attempts",
        "quota_exceeded",
        "queue_full",
        "queue_timeout",
        "deadline_exceeded",
        "overloaded",
        "nothing_serving",
        "control_away",
        "quarantined",
        "reception_full",
    }
)
"""Codes of errors that are counted as refusals of admission; of a quota the limit is named instead."""


class Gate:
    """See the module; one a worker."""

    def __init__(
        self,
        *,
        desk: Desk,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
        with_keys: bool = False,
        lone: bool = True,
        hurry: Callable[[], None] = lambda: None,
    ) -> None:
        """``lone``: the worker has no siblings; else ``hurry()`` has control hear soon that a share is too small."""
        self.keyring = Keyring(clock=clock, wall=wall) if with_keys else None
        self.refusals: Counter[str] = Counter()
        self._shares = ShareTable(lone=lone)
        self._quotas = Quotas(shares=self._shares, clock=clock, wall=wall, hurry=hurry)
        self._room = WaitingRoom(desk=desk, shares=self._shares, clock=clock, hurry=hurry)
        self._desk = desk
        self._plain = True
        self.idle = not with_keys  # nobody has a key and nobody waits: there is nothing to do for a request
        desk.on_news = self._hear

    @property
    def open(self) -> bool:
        """Whether this worker knows whom to let in."""
        return self.keyring is None or self.keyring.table is not None

    # --- what control says ----------------------------------------------------------------------------------------

    def _hear(self, message: ControlMessage) -> None:
        match message:
            case NewSnapshot(snapshot=snapshot):
                self._room.follow(snapshot)
                self._plain = self._room.empty
                self.idle = self._plain and self.keyring is None
                self._desk.on_free = None if self._plain else self._room.freed
            case Shares(limits=limits, parts=parts, spent=spent):
                self._shares.take(limits)
                self._quotas.spent(spent)
                self._quotas.news()
                self._room.weigh(parts)
                self._room.move()
            case NewKeys(keys=keys) if self.keyring is not None:
                self.keyring.replace(keys)
                self._quotas.set_keys(keys)
                self._room.check(self._is_good)
                self._room.forget({key.id for key in keys})
            case _:
                pass

    def _is_good(self, visit: Visit) -> bool:
        return visit.key is None or self.keyring is None or self.keyring.is_good(visit.key)

    # --- a request ------------------------------------------------------------------------------------------------

    def identify(self, visit: Visit, request: web.BaseRequest, endpoint: Endpoint) -> None:
        """Find out whose request it is, where clients have keys.

        Raises InvalidKey, KeyForbidden, TooManyAttempts, ControlAway.
        """
        if self.keyring is None:
            return
        key = visit.key = self.keyring.identify(request, endpoint)
        visit.key_id = key.id if key is not None else ""
        if key is not None and key.defaults.metrics and "X-Gateway-Metrics" not in request.headers:
            visit.metrics = key.defaults.metrics

    def ask(self, visit: Visit, request: web.BaseRequest, *, names: Iterable[str]) -> None:
        """Read what the request asks for; ``names``: what its model is called, by the client and by the engines.

        Raises BadRequest, KeyForbidden.
        """
        if self.idle:
            return
        key, endpoint = visit.key, visit.endpoint
        if key is not None and not (endpoint is not None and endpoint.owned):  # what was made has its model already
            check_model(key, names)
        if self._plain:
            return
        visit.priority = _priority(request.headers.get("X-Gateway-Priority"), key)
        deadline_s = _deadline_s(request.headers.get("X-Gateway-Deadline"))
        visit.deadline = None if deadline_s is None else visit.accepted + deadline_s

    async def enter(self, visit: Visit, key: Key) -> None:
        """Let the request in by its key's quotas, until it is :meth:`settled`.  Raises QuotaExceeded."""
        await self._quotas.enter(visit, key)

    def try_lease(self, visit: Visit) -> Lease | None:
        """A backend for the request at once, None when it has to :meth:`wait`.  Raises NothingServing."""
        if visit.only is not None and (self._plain or visit.thing):  # what was made takes no place
            return self._desk.hold(visit.only)
        if self._plain:
            return self._desk.lease(pool=visit.pool, model=visit.model, tried=visit.tried, session=visit.session)
        return self._room.try_lease(visit)

    async def wait(self, visit: Visit) -> Lease:
        """A backend for the request once it is its turn; see :meth:`WaitingRoom.wait`."""
        return await self._room.wait(visit)

    def may_hold(self, visit: Visit) -> bool:
        """Whether a request that could not reach its backend may wait for any to come back.

        Not where only that one can answer.
        """
        return not self._plain and visit.only is None and self._room.may_hold(visit)

    def refused(self, visit: Visit, error: GatewayError) -> None:
        """Count a request that was not let in."""
        if error.code in REFUSALS:
            reason = (error.param or error.code) if isinstance(error, QuotaExceeded) else error.code
            self.refusals[f"{visit.pool}|{reason}"] += 1

    def settled(self, visit: Visit, record: RequestRecord, *, at_least: int = 0) -> None:
        """A request has ended, however it did: it holds nothing any more, and its key and its flow are charged.

        It has cost what the record says, and no less than so many tokens.
        """
        if self.idle:
            return
        summary = record.summary
        known = 0 if summary is None else (summary.prompt_tokens or 0) + (summary.completion_tokens or 0)
        tokens = max(known, at_least)
        if visit.key is not None:
            self._quotas.leave(visit, visit.key, tokens=tokens)
        self._room.settled(visit, tokens)

    def end_all(self) -> None:
        """Shutdown's deadline: nobody waits any longer."""
        self._room.end_all()

    # --- what control is told -------------------------------------------------------------------------------------

    def claims(self) -> dict[str, Claim]:
        """What this worker holds of limits that it shares with others, and of those of the day."""
        claims = self._quotas.claims()
        if not self._shares.lone:
            claims.update(self._room.claims())
        return claims

    def flows(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Pool -> key id -> requests that wait and requests that are served."""
        return self._room.flows()

    def waits(self) -> dict[str, float]:
        """Pool -> since when (monotonic) the request waits there that has waited longest."""
        return self._room.waits()


def _priority(given: str | None, key: Key | None) -> int:
    lowest, highest = (0, MAX_PRIORITY) if key is None else (key.priority_min, key.priority_max)
    if given is None:
        return 0 if key is None else key.defaults.priority
    try:
        priority = int(given) if len(given) <= 4 else MAX_PRIORITY + 1
    except ValueError:
        priority = MAX_PRIORITY + 1
    if abs(priority) > MAX_PRIORITY:
        raise BadRequest("X-Gateway-Priority is a whole number, the lower the sooner", param="X-Gateway-Priority")
    if not lowest <= priority <= highest:
        message = f"X-Gateway-Priority may be {lowest} to {highest} here"
        raise KeyForbidden(message, param="X-Gateway-Priority")
    return priority


def _deadline_s(given: str | None) -> float | None:
    if given is None:
        return None
    try:
        deadline_s = float(given)
    except ValueError:
        deadline_s = math.nan
    if not 0 < deadline_s <= MAX_DEADLINE_S:
        raise BadRequest("X-Gateway-Deadline is a number of seconds above 0", param="X-Gateway-Deadline")
    return deadline_s
