"""The worker's end of the link to control: records and heartbeats out, snapshots and pulses in.

Serves every station without ever making one wait: what is offered is queued, dropped and counted when control is slow
or gone, and the worker goes on serving on its last snapshot.  The heartbeats' counters are authoritative, records are
best effort.  Must not decide anything: what a message means is the shell's affair.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from gateway import aio
from gateway.core.link.framing import frame
from gateway.core.link.messages import (
    HEARTBEAT_S,
    PROTOCOL,
    AskUsage,
    BackendFailure,
    ControlMessage,
    DrainAck,
    Heartbeat,
    Hello,
    RequestRecord,
    Settled,
)
from gateway.errors import LinkGarbled
from gateway.proxy.conversation import Conversation

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MAX_QUEUED_RECORDS: Final = 10_000
MAX_QUEUED_FAILURES: Final = 1_000  # the newest are kept: an old failure says little about health
BATCH_RECORDS: Final = 256
BATCH_S: Final = 0.05
RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
_SAID_ALL: Final = "everything was sent before the end"

log = logging.getLogger("gateway.link")


class WorkerLink:
    """Keeps one connection to control, for as long as :meth:`run` runs.

    Owns the queues of what control has not been told yet.  Everything but ``run`` and ``close`` returns at once and
    is called on the loop's own thread.
    """

    def __init__(
        self,
        path: str,
        slot: int,
        *,
        on_message: Callable[[ControlMessage], None],
        heartbeat: Callable[[], Heartbeat],
        started_wall: float,
        on_lost: Callable[[], None] = lambda: None,
        connect: Callable[[], Awaitable[Streams]] | None = None,
    ) -> None:
        """``path`` is control's Unix socket; ``connect`` replaces it (an in-memory pair).

        ``on_message`` gets every message but Refused.  ``heartbeat`` is called when one is about to be written, so
        it should report :attr:`dropped` as it is then.  ``on_lost`` is called when a connection has ended.
        """
        self._slot = slot
        self._on_message = on_message
        self._heartbeat = heartbeat
        self._on_lost = on_lost
        self._hello = Hello(protocol=PROTOCOL, slot=slot, pid=os.getpid(), started_wall=started_wall)
        self._connect = connect or (lambda: asyncio.open_unix_connection(path))
        self._records: deque[RequestRecord] = deque()
        self._failures: deque[BackendFailure] = deque(maxlen=MAX_QUEUED_FAILURES)
        self._acks: dict[str, DrainAck] = {}
        self._questions: list[AskUsage] = []
        self._dropped = 0
        self._beat_asked = False
        self._connected = False
        self._closing = False
        self._due: asyncio.TimerHandle | None = None  # when what has begun to queue is sent
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def dropped(self) -> int:
        """Records that were lost, or may have been, since the worker started."""
        return self._dropped

    @property
    def connected(self) -> bool:
        """Whether a connection to control stands now."""
        return self._connected

    def offer(self, record: RequestRecord) -> None:
        """Queue a settled request; a full queue drops and counts it."""
        if len(self._records) >= MAX_QUEUED_RECORDS:
            self._dropped += 1
            return
        self._records.append(record)
        self._wake_for(len(self._records))

    def offer_failure(self, failure: BackendFailure) -> None:
        """Queue a failed attempt; a full queue loses the oldest."""
        self._failures.append(failure)
        self._wake_for(len(self._failures))

    def send(self, ack: DrainAck) -> None:
        """Tell control at once; of several for one backend only the newest goes out.

        While there is no connection it is forgotten: control asks again by the snapshot that it sends first.
        """
        if self._connected:
            self._acks[ack.backend] = ack
            self._wake.set()

    def ask(self, question: AskUsage) -> bool:
        """Ask control, after what is queued now; False, and nothing is asked, while there is no connection."""
        if self._connected:
            self._questions.append(question)
            self._wake.set()
        return self._connected

    def beat_soon(self) -> None:
        """Have a heartbeat sent now, not when the next one is due: control waits for what has changed."""
        self._beat_asked = True
        self._wake.set()

    def _wake_for(self, queued: int) -> None:
        """Have the queue sent: in a while when it has begun to fill, now when a batch is full."""
        if not self._connected:
            return
        if queued >= BATCH_RECORDS:
            self._wake.set()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(BATCH_S, self._wake.set)

    def _nothing_due(self) -> None:
        """The queue is being sent: what is offered from here on has its own time.

        A timer that was left to run would send its first few records alone, and there would soon be one for each.
        """
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def run(self) -> None:
        """Connect, converse, reconnect (pauses of 50 ms doubling to 1 s) until :meth:`close`."""
        self._ended.clear()
        try:
            pause_s = RETRY_FIRST_S
            while not self._closing:
                if await self._attempt():
                    pause_s = RETRY_FIRST_S
                if not self._closing:
                    self._wake.clear()
                    await self._sleep_until(asyncio.get_running_loop().time() + pause_s)
                    pause_s = min(pause_s * 2, RETRY_MAX_S)
        finally:
            self._ended.set()

    async def close(self, *, timeout_s: float = 1.0) -> None:
        """Send what is queued and a last heartbeat, then end :meth:`run`; waits at most ``timeout_s`` for it.

        A run that has not ended by then is its owner's to cancel.
        """
        self._closing = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            log.warning("link.close_timeout", extra={"records": len(self._records)})

    async def _attempt(self) -> bool:
        """One connection, from connect to its end; True when control spoke on it."""
        try:
            reader, writer = await self._connect()
        except OSError as error:
            log.debug("link.connect_failed", extra={"reason": str(error)})
            return False
        conversation = Conversation(self._on_message)
        self._connected = True
        self._acks.clear()
        self._questions.clear()
        reading = aio.spawn(conversation.read(reader), name="link read")
        writing = aio.spawn(self._write(writer), name="link write")
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            if _ended_well(writing) and writer.can_write_eof():
                # Not closed yet: with something unread that would be a reset, which takes what was sent before along.
                writer.write_eof()
                await asyncio.wait({reading})
        finally:
            self._connected = False
            self._nothing_due()
            reading.cancel()
            writing.cancel()
            try:
                ends = await asyncio.gather(reading, writing, return_exceptions=True)
                await _flush(writer, wanted=ends[1] == _SAID_ALL)
            finally:
                writer.transport.abort()  # whatever cancels this meanwhile
        self._on_lost()
        if not self._closing:
            log.warning("link.lost", extra={"reason": _first_reason(ends)})
        return conversation.spoken

    async def _write(self, writer: asyncio.StreamWriter) -> str:
        """Writer task: hello, then heartbeats, acknowledgements and batches as they come due.  Returns at close."""
        loop = asyncio.get_running_loop()
        writer.write(frame(self._hello))
        beat_at = loop.time()
        while True:
            self._wake.clear()
            self._nothing_due()
            closing = self._closing
            for backend in list(self._acks):
                writer.write(frame(self._acks.pop(backend)))
            if self._beat_asked or loop.time() >= beat_at:
                self._beat_asked = False
                writer.write(frame(self._heartbeat()))
                beat_at = loop.time() + HEARTBEAT_S
            questions, self._questions = self._questions, []
            await self._write_batches(writer)
            for question in questions:
                writer.write(frame(question))
            await writer.drain()
            if closing:
                writer.write(frame(self._heartbeat()))
                return _SAID_ALL
            await self._sleep_until(beat_at)

    async def _write_batches(self, writer: asyncio.StreamWriter) -> None:
        """What is queued now, in batches; what is offered meanwhile waits for the next turn."""
        queued = len(self._records)
        while queued > 0 or self._failures:
            records = [self._records.popleft() for _ in range(min(queued, BATCH_RECORDS))]
            failures = list(self._failures)
            self._failures.clear()
            queued -= len(records)
            try:
                writer.write(frame(Settled(slot=self._slot, records=records, failures=failures)))
                await writer.drain()
            except LinkGarbled as error:
                self._dropped += len(records)
                log.warning("link.batch_unsendable", extra={"reason": error.message, "records": len(records)})
            except (OSError, asyncio.CancelledError):
                self._dropped += len(records)  # some may have arrived; a drop too many is the safe side
                raise

    async def _sleep_until(self, at: float) -> None:
        try:
            async with asyncio.timeout_at(at):
                await self._wake.wait()
        except TimeoutError:
            return


def _ended_well(task: asyncio.Task[str]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _flush(writer: asyncio.StreamWriter, *, wanted: bool) -> None:
    """Close in order when that is ``wanted``: returns when what is still in the buffer has been sent."""
    try:
        if wanted:
            writer.close()
            await writer.wait_closed()
    except OSError as error:
        log.debug("link.close_failed", extra={"reason": str(error)})


def _first_reason(ends: Iterable[str | BaseException]) -> str:
    """Why a conversation ended, from its reader's and its writer's end; cancelled is the half that only followed."""
    for end in ends:
        if isinstance(end, str):
            return end
        if not isinstance(end, asyncio.CancelledError):
            return f"{type(end).__name__}: {end}"
    return "cancelled"
