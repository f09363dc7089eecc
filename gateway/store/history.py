"""The history store as the event loop sees it: the port `History`, on SQLite.

SQLite from the standard library in one thread of our own, rather than a wrapper library: one writer is what SQLite
wants, batches and troubles need a loop of their own anyway, and a wrapper's thread per call would hide both.
No method waits for the disk on the event loop: `add` queues, `find` and `get` await the thread's answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from gateway.core.admission.usage import UsageRow
from gateway.core.link.messages import RequestRecord
from gateway.errors import StoreUnusable
from gateway.ports import RequestFilter, StoredRequest
from gateway.store.database import Database
from gateway.store.events import StoreEvent
from gateway.store.inbox import Inbox, Question
from gateway.store.opening import Connect, connect
from gateway.store.policy import StorePolicy
from gateway.store.writer import Writer

Answer = TypeVar("Answer")


class SqliteHistory:
    """Implements `gateway.ports.History`.

    Use::

        history = SqliteHistory(StorePolicy(path=..., keep_days=..., keep_bytes=...), on_event=log_event)
        await history.start()      # StoreUnusable: path, reason, what to do
        ...
        await history.close()      # writes what still waits

    ``on_event`` is called on the event loop that ran :meth:`start`.
    """

    def __init__(
        self,
        policy: StorePolicy,
        *,
        on_event: Callable[[StoreEvent], None],
        clock: Callable[[], float] = time.monotonic,
        now_wall: Callable[[], float] = time.time,
        connect_to: Connect = connect,
    ) -> None:
        self._policy = policy
        self._on_event = on_event
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox = Inbox(policy, clock)
        self._writer = Writer(
            policy, self._inbox, tell=self._tell, clock=clock, now_wall=now_wall, connect_to=connect_to
        )

    async def start(self, *, timeout_s: float = 30.0) -> None:
        """Open, check and migrate the file; returns when it is ready.

        A damaged file is moved aside (event `history.moved_aside`) and a new one started.  Raises StoreUnusable, also
        when the disk gives no answer within ``timeout_s``.
        """
        self._loop = asyncio.get_running_loop()
        self._writer.start()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(asyncio.wrap_future(self._writer.opened))
        except TimeoutError as error:
            raise StoreUnusable(
                f"{self._policy.path}: the disk has not answered for {timeout_s:g} s; look at the disk"
            ) from error

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Write what waits and close the file; gives up on a hung disk after ``timeout_s``."""
        self._inbox.close()
        if self._loop is not None:
            await asyncio.wait([asyncio.wrap_future(self._writer.ended)], timeout=timeout_s)

    def add(self, records: Sequence[RequestRecord]) -> None:
        """Queue rows for writing; returns at once; what finds no room is dropped and counted."""
        self._inbox.add(records)

    async def find(self, wanted: RequestFilter) -> list[StoredRequest]:
        """Rows that match, among them those that were added before.  Raises StoreUnusable."""
        return await self._ask(lambda database: database.find(wanted))

    async def get(self, request_id: str) -> StoredRequest | None:
        """The newest row with that request id.  Raises StoreUnusable."""
        return await self._ask(lambda database: database.get(request_id))

    async def usage(self, since_wall: float) -> list[UsageRow]:
        """What each key has used since then, by model, as far as rows were stored.  Raises StoreUnusable."""
        return await self._ask(lambda database: database.usage(since_wall))

    def rows(self) -> int:
        """How many rows the file holds, as of the last write."""
        return self._writer.rows

    def dropped(self) -> int:
        """How many records were lost since the start: no room, or no way to store them."""
        return self._inbox.dropped + self._writer.refused

    def problem(self) -> str:
        """One sentence when the store cannot be used at present, else ""."""
        problem = self._writer.problem
        busy_since = self._writer.busy_since
        if not problem and busy_since is not None and self._clock() - busy_since > self._policy.hung_s:
            problem = f"{self._policy.path}: the disk has not answered for {self._clock() - busy_since:.0f} s"
        if problem and self.dropped():
            problem += f" ({self.dropped()} rows dropped since the start)"
        return problem

    async def _ask(self, ask: Callable[[Database], Answer]) -> Answer:
        question = Question(ask)
        if not self._inbox.ask(question):
            raise StoreUnusable("the history store is closed, or too many questions wait for it")
        try:
            async with asyncio.timeout(self._policy.answer_s):
                return await asyncio.wrap_future(question.answer)
        except TimeoutError as error:
            raise StoreUnusable(self.problem() or f"no answer within {self._policy.answer_s:g} s") from error

    def _tell(self, event: StoreEvent) -> None:
        # Called by the thread.  The loop may have ended while a hung disk held the thread: nobody is left to tell.
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._on_event, event)
