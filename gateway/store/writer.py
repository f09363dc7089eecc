"""The store's thread: takes records and questions from the inbox, keeps the file usable, forgets old rows.

Owns the open file and every decision about its troubles: damaged -> moved aside, at most once in a while; anything
else (full, read-only, locked) -> closed and opened again after a growing pause, while records wait in the inbox.
Never touches the event loop except through ``tell``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final

from gateway.errors import StoreUnusable
from gateway.store.database import Database
from gateway.store.diagnose import Cause, Damaged, cause_of, explain
from gateway.store.events import (
    FileGone,
    Migrated,
    MovedAside,
    Recovered,
    RowsDropped,
    RowUnreadable,
    StoreEvent,
    Troubled,
)
from gateway.store.inbox import Inbox
from gateway.store.lock import held
from gateway.store.opening import Connect, move_aside
from gateway.store.policy import StorePolicy


class Writer:
    """Runs in a thread of its own; others may read ``problem``, ``rows``, ``refused`` and ``busy_since``.

    ``busy_since``: when the work on the disk that is going on now began (clock seconds), None between works.
    ``opened`` ends when the file is open, with StoreUnusable when it cannot be; then the thread has ended, too.
    ``ended`` ends when everything that could be written is written and the file is closed.
    """

    def __init__(
        self,
        policy: StorePolicy,
        inbox: Inbox,
        *,
        tell: Callable[[StoreEvent], None],
        clock: Callable[[], float],
        now_wall: Callable[[], float],
        connect_to: Connect,
    ) -> None:
        self._policy = policy
        self._inbox = inbox
        self._tell = tell
        self._clock = clock
        self._now_wall = now_wall
        self._connect_to = connect_to
        self._database: Database | None = None
        self._tick_at = 0.0
        self._troubled_at = 0.0
        self._pause_s = 0.0
        self._retry_at = 0.0
        self._moved_at: float | None = None
        self._dropped_told = 0
        self._path: Final = str(policy.path)
        self.problem = ""
        self.rows = 0
        self.refused = 0
        self.busy_since: float | None = None
        self.opened: Final[Future[None]] = Future()
        self.ended: Final[Future[None]] = Future()

    def start(self) -> None:
        """Start the thread; a daemon, so that a hung disk cannot keep the process from ending."""
        threading.Thread(target=self._run, name="history", daemon=True).start()

    def _run(self) -> None:
        try:
            with held(self._policy.path):
                self._open_first()
                self.opened.set_result(None)
                self._live()
        except StoreUnusable as error:  # from the opening: what is met later is told as a trouble
            self.opened.set_exception(error)
        finally:
            self.ended.set_result(None)

    def _live(self) -> None:
        while not self._inbox.closing:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - the thread's root: a defect is told as a trouble, and retried
                self._fail(error)
        self._finish()

    # --- one turn -----------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._database is None:
            if self._clock() >= self._retry_at:
                self._open_again()
            else:
                self._inbox.wait(self._retry_at, hold_records=True)
                self._refuse_questions()
            return
        self._inbox.wait(self._tick_at, hold_records=False)
        with self._busy():
            ticking = self._clock() >= self._tick_at
            if ticking and self._database.replaced():
                self._tell(FileGone(path=self._path))
                self._close()
                return
            # Asked before the writing: an answer must know every record that was added before its question.
            asked = self._inbox.has_question()
            self._work(self._database, ticking=ticking)
            question = self._inbox.next_question() if asked else None
            if question is not None:
                question.put_to(self._database)

    def _work(self, database: Database, *, ticking: bool) -> None:
        """Write what waits and forget as much; that both went well proves that the store works."""
        wrote = self._write_waiting(database)
        if wrote or ticking:
            database.trim(self._now_wall())
            self.rows = database.rows
            self._mark_working()
        if ticking:
            self._tick_at = self._clock() + self._policy.tick_s
            self._tell_dropped()

    def _write_waiting(self, database: Database) -> bool:
        # Bounded, since more may arrive all the while and questions wait, too.
        wrote = False
        for _ in range(self._policy.pending_records // self._policy.batch_records + 1):
            batch = self._inbox.batch()
            if not batch:
                break
            refused = database.write(batch)
            self._inbox.done(len(batch))
            wrote = True
            if refused:
                self.refused += refused
                self._tell(RowsDropped(path=self._path, count=refused, refused=True))
        return wrote

    def _finish(self) -> None:
        """Write the rest if it can be written, close, let nobody wait for an answer."""
        try:
            with self._busy():
                database = self._database or self._open()
                self._database = database
                self._write_waiting(database)
        except Exception as error:  # noqa: BLE001 - the thread's last act: what cannot be written now is counted as lost
            self._trouble(self._sentence(error))
        finally:
            self._inbox.abandon()
            self._refuse_questions()
            self._tell_dropped()
            with self._busy():
                self._close()

    # --- opening and troubles -----------------------------------------------------------------------------------

    def _open(self) -> Database:
        """Open the file, moving a damaged one aside first.  Raises StoreUnusable, OSError or sqlite3.Error."""
        try:
            return self._open_as_it_is()
        except Damaged as error:
            self._move_aside(str(error))
            return self._open_as_it_is()

    def _open_as_it_is(self) -> Database:
        database = Database(self._policy, self._tell_unreadable, connect_to=self._connect_to)
        self.rows = database.rows
        if 0 < database.version_before < database.version:
            self._tell(Migrated(path=self._path, before=database.version_before, after=database.version))
        return database

    def _open_first(self) -> None:
        try:
            with self._busy():
                self._database = self._open()
        except StoreUnusable:
            raise
        except Exception as error:
            raise StoreUnusable(self._sentence(error)) from error
        self._tick_at = self._clock() + self._policy.tick_s

    def _open_again(self) -> None:
        with self._busy():
            self._database = self._open()
        # Proves at once, by the tick's own write, whether the trouble is over.
        self._tick_at = self._clock()

    def _move_aside(self, reason: str) -> None:
        now = self._clock()
        if self._moved_at is not None and now - self._moved_at < self._policy.move_aside_every_s:
            raise StoreUnusable(f"{self._path}: damaged again at once ({reason}); look at the disk and its system log")
        moved_to = move_aside(self._policy.path, self._now_wall())
        self._moved_at = now
        self._tell(MovedAside(path=self._path, moved_to=str(moved_to), reason=reason))

    def _fail(self, error: Exception) -> None:
        """Decide what a failed turn means."""
        cause = cause_of(error)
        if cause is Cause.INTERRUPTED:
            return  # our own limit on a question; the asker knows
        self._close()
        if cause is Cause.DAMAGE:
            try:
                self._move_aside(str(error))
                self._open_again()
            except Exception as second:  # noqa: BLE001 - as at the root: told and retried
                self._trouble(self._sentence(second))
            return
        self._trouble(self._sentence(error))

    def _trouble(self, sentence: str) -> None:
        now = self._clock()
        first = not self.problem
        self.problem = sentence
        self._pause_s = self._policy.retry_first_s if first else min(self._pause_s * 2, self._policy.retry_max_s)
        self._retry_at = now + self._pause_s
        if first:
            self._troubled_at = now
            self._tell(Troubled(path=self._path, problem=sentence))

    def _mark_working(self) -> None:
        if self.problem:
            self.problem = ""
            lasted_s = self._clock() - self._troubled_at
            self._tell(Recovered(path=self._path, lasted_s=lasted_s, dropped=self._inbox.dropped))

    def _sentence(self, error: Exception) -> str:
        return error.message if isinstance(error, StoreUnusable) else explain(error, self._policy.path)

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    # --- small things -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self.busy_since = self._clock()
        try:
            yield
        finally:
            self.busy_since = None

    def _refuse_questions(self) -> None:
        while question := self._inbox.next_question():
            question.refuse(self.problem or "the history store is closed")

    def _tell_dropped(self) -> None:
        dropped = self._inbox.dropped
        if dropped > self._dropped_told:
            self._tell(RowsDropped(path=self._path, count=dropped - self._dropped_told, refused=False))
            self._dropped_told = dropped

    def _tell_unreadable(self, row_id: int, reason: str) -> None:
        self._tell(RowUnreadable(path=self._path, id=row_id, reason=reason))
