"""What waits for the store's thread: records and questions, both bounded.

The only state that the event loop and the thread share.  Every method holds the lock for a moment only; none but
:meth:`Inbox.wait` waits, and only the thread calls that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from gateway.core.link.messages import RequestRecord
from gateway.errors import StoreUnusable
from gateway.store.database import Database
from gateway.store.policy import StorePolicy

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """Something to ask of the open file; ``answer`` ends exactly once, unless the asker has left."""

    def __init__(self, ask: Callable[[Database], Answer]) -> None:
        self._ask: Final = ask
        self.answer: Final[Future[Answer]] = Future()

    def put_to(self, database: Database) -> None:
        """Ask and answer.  A failure goes to the asker and is raised as well."""
        if not self.answer.set_running_or_notify_cancel():
            return
        try:
            found = self._ask(database)
        except BaseException as error:
            # The asker gets an error that it can show; what the failure means for the store is decided by the thread.
            self.answer.set_exception(StoreUnusable(f"the history could not be read: {error}"))
            raise
        self.answer.set_result(found)

    def refuse(self, reason: str) -> None:
        """Answer that the store cannot be used."""
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(StoreUnusable(reason))


class Inbox:
    """Owner of the queues.  ``dropped`` counts records that found no room."""

    def __init__(self, policy: StorePolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._changed = threading.Condition()
        self._records: deque[RequestRecord] = deque()
        self._questions: deque[Question[Any]] = deque()
        self._first_at = 0.0
        self._closing = False
        self.dropped = 0

    @property
    def closing(self) -> bool:
        """Whether nothing more will come."""
        return self._closing

    def add(self, records: Sequence[RequestRecord]) -> None:
        """Queue what there is room for; drop and count the rest."""
        with self._changed:
            room = 0 if self._closing else self._policy.pending_records - len(self._records)
            taken = records if len(records) <= room else records[: max(room, 0)]
            before = len(self._records)
            self._records.extend(taken)
            self.dropped += len(records) - len(taken)
            if not before:
                self._first_at = self._clock()
            if not before or before < self._policy.batch_records <= len(self._records):
                self._changed.notify()

    def ask(self, question: Question[Any]) -> bool:
        """Queue a question; False when too many wait or nothing is answered any more."""
        with self._changed:
            if self._closing or len(self._questions) >= self._policy.pending_questions:
                return False
            self._questions.append(question)
            self._changed.notify()
            return True

    def close(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def wait(self, until: float, *, hold_records: bool) -> None:
        """Wait for a question, the end, records ripe for a batch (not with ``hold_records``), or clock ``until``."""
        with self._changed:
            while not (self._closing or self._questions):
                end = until if hold_records or not self._records else min(until, self._ripe_at())
                left_s = end - self._clock()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def batch(self) -> list[RequestRecord]:
        """The oldest records, at most one batch of them; they stay queued until :meth:`done`."""
        with self._changed:
            return list(islice(self._records, self._policy.batch_records))

    def done(self, count: int) -> None:
        """The oldest ``count`` records are written."""
        with self._changed:
            for _ in range(count):
                self._records.popleft()

    def has_question(self) -> bool:
        """Whether one waits now."""
        with self._changed:
            return bool(self._questions)

    def next_question(self) -> Question[Any] | None:
        """The oldest question, taken out of the queue."""
        with self._changed:
            return self._questions.popleft() if self._questions else None

    def abandon(self) -> None:
        """Drop and count what still waits: the store is ending and cannot write."""
        with self._changed:
            self.dropped += len(self._records)
            self._records.clear()

    def _ripe_at(self) -> float:
        full = len(self._records) >= self._policy.batch_records
        return 0.0 if full else self._first_at + self._policy.flush_s
