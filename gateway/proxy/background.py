"""Station settle, for responses that are made in the background: the engine goes on when its answer has ended.

Owner of those that are not finished.  Each is asked for at its backend until it is, and only then its request settles:
one record, its key charged once, by the worker that sent it.  Until then it counts as a request of its key.  What its
client does meanwhile makes no difference.  Must not be asked for anything that a client waits for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from gateway import aio
from gateway.core.link.messages import RequestRecord
from gateway.core.request.body import asks_background, most_output_tokens
from gateway.core.routing.endpoints import Endpoint
from gateway.core.routing.snapshot import BackendView
from gateway.core.stream.summary import Dialect, Exactness, Outcome, RequestShape, StreamSummary
from gateway.core.stream.tap import summarise_body
from gateway.errors import BadRequest, GatewayError, Overloaded
from gateway.proxy.asking import FOUND, UNKNOWN, ask_for_response
from gateway.proxy.route import Desk
from gateway.proxy.upstream import Upstreams
from gateway.proxy.visit import Visit

MOST: Final = 1024
"""Background responses that one worker may have unfinished."""

FIRST_S: Final = 0.5
LONGEST_S: Final = 5.0
_PER_MEGABYTE_S: Final = 10.0
"""An unfinished response repeats its instructions and tools: the longer it is, the less often it is asked for."""

SILENT_S: Final = 60.0
"""A backend that has not answered for so long has lost what it was making."""

FOREVER_S: Final = 86_400.0
AT_ONCE: Final = 16
_RUNNING: Final = frozenset({"queued", "in_progress"})
_CANCELLED: Final = "cancelled"
_WHOLE: Final = RequestShape(stream=False)

log = logging.getLogger("gateway.background")


class _Kept:
    """One unfinished response."""

    __slots__ = ("backend", "look", "record", "task", "visit")

    def __init__(self, visit: Visit, record: RequestRecord, backend: BackendView) -> None:
        self.visit = visit
        self.record = record
        self.backend = backend
        self.look = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Background:
    """See the module; one a worker."""

    def __init__(
        self,
        desk: Desk,
        upstreams: Upstreams,
        *,
        settle: Callable[[Visit, RequestRecord, int], None],
        clock: Callable[[], float],
    ) -> None:
        """``settle(visit, record, at_least)``: the request has ended, having cost no less than so many tokens."""
        self._desk = desk
        self._upstreams = upstreams
        self._settle = settle
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._over = False
        self._turn = asyncio.Semaphore(AT_ONCE)

    def __len__(self) -> int:
        return len(self._kept)

    def check(self, visit: Visit, endpoint: Endpoint) -> None:
        """Look whether ``visit`` asks for a background response, and set tokens of its key aside for one.

        Raises BadRequest where its key has a limit of tokens and it does not say how many it may cost; Overloaded.
        """
        body, key = visit.body, visit.key
        if endpoint.dialect is not Dialect.RESPONSES or endpoint.owned or body is None or not asks_background(body):
            return
        visit.background = True
        if len(self._kept) >= MOST:
            raise Overloaded("too many background responses are being made; try again shortly", retry_after_s=LONGEST_S)
        if key is None or (key.limits.tokens_per_minute is None and key.limits.tokens_per_day is None):
            return
        visit.reserves = most_output_tokens(body)
        if not visit.reserves:
            raise BadRequest(
                "this key has a limit of tokens: a background response takes max_output_tokens, so many of them are "
                "set aside until it has ended",
                param="max_output_tokens",
            )

    def keep(self, visit: Visit, record: RequestRecord) -> bool:
        """Whether the engine goes on with what ``record`` is about: then it settles later."""
        if not visit.background or not visit.made or visit.backend is None or not _goes_on(visit, record):
            return False
        if visit.made in self._kept:  # without keys a client may name two alike; an engine then has one
            return False
        if self._over:
            self._settle(visit, record, visit.reserves)
            return True
        visit.known_by()
        visit.body = None
        kept = self._kept[visit.made] = _Kept(visit, record, visit.backend)
        kept.task = aio.spawn(self._follow(kept), name="background")
        return True

    def look(self, thing: str) -> None:
        """A client has just asked for a response: it may be finished."""
        if (kept := self._kept.get(thing)) is not None:
            kept.look.set()

    def end_all(self) -> None:
        """The worker ends: what is unfinished counts for as much as it may come to cost."""
        self._over = True
        for thing, kept in list(self._kept.items()):
            if kept.task is not None:
                kept.task.cancel()
            self._end(thing, kept, None, at_most=True)

    async def _follow(self, kept: _Kept) -> None:
        thing, summary, at_most = kept.visit.made, None, True
        try:
            summary, at_most = await self._finished(kept)
        except Exception:  # the root of a task: whatever it was, the request must settle
            log.exception("request.defect", extra={"request_id": kept.record.request_id})
        self._end(thing, kept, summary, at_most=at_most)

    def _end(self, thing: str, kept: _Kept, summary: StreamSummary | None, *, at_most: bool) -> None:
        if self._kept.get(thing) is not kept:
            return
        del self._kept[thing]
        outcome = _in_the_end(kept.record.outcome, summary, lost=not at_most)
        kept.record = replace(kept.record, outcome=outcome, summary=summary or kept.record.summary)
        exact = summary is not None and summary.total_exactness is Exactness.EXACT
        self._settle(kept.visit, kept.record, kept.visit.reserves if at_most and not exact else 0)

    async def _finished(self, kept: _Kept) -> tuple[StreamSummary | None, bool]:
        """What was measured of the response when it has ended, and whether it counts in full if nothing was."""
        pause_s, heard_at = FIRST_S, self._clock()
        until = heard_at + FOREVER_S
        while self._clock() < until:
            await self._pause(kept, pause_s)
            pause_s = min(2 * pause_s, LONGEST_S)
            limits = kept.visit.snapshot.policy.limits
            async with self._turn:
                status, body = await self._ask(kept, most_bytes=limits.answer_tap_bytes)
            if status in FOUND:
                heard_at = self._clock()
                summary = summarise_body(Dialect.RESPONSES, body, _WHOLE)
                if not _RUNNING.intersection(summary.finish_reasons):
                    return summary, _CANCELLED in summary.finish_reasons or not body
                pause_s = max(pause_s, len(body) / 1e6 * _PER_MEGABYTE_S)
            elif status == UNKNOWN or self._clock() - heard_at > SILENT_S:
                return None, False
        return None, True

    async def _ask(self, kept: _Kept, *, most_bytes: int) -> tuple[int, bytes]:
        known = [it for it in self._desk.snapshot.backends if it.name == kept.backend.name]
        timers = self._desk.snapshot.policy.timers
        try:
            return await ask_for_response(
                self._upstreams,
                known[0] if known else kept.backend,
                kept.visit.made,
                timers=timers,
                most_bytes=most_bytes,
            )
        except GatewayError:
            return 0, b""

    @staticmethod
    async def _pause(kept: _Kept, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await kept.look.wait()
        except TimeoutError:
            return
        kept.look.clear()


def _in_the_end(outcome: Outcome, summary: StreamSummary | None, *, lost: bool) -> Outcome:
    """The outcome of a response whose first answer had ``outcome``; where nobody knows how it ended, that one."""
    if outcome is not Outcome.OK:
        return outcome
    if summary is None:
        return Outcome.UPSTREAM_ERROR if lost else outcome
    if summary.terminal or summary.bad_events:
        return outcome
    return Outcome.CLIENT_GONE if _CANCELLED in summary.finish_reasons else Outcome.UPSTREAM_ERROR


def _goes_on(visit: Visit, record: RequestRecord) -> bool:
    """Whether the engine may still be at work on a request whose answer has ended."""
    status = visit.exchange.head.status if visit.exchange is not None and visit.exchange.head is not None else 0
    if record.sent_s is None or (status and status not in FOUND):
        return False
    if record.summary is None:
        return True
    return not record.summary.terminal or not _RUNNING.isdisjoint(record.summary.finish_reasons)
