"""The far end of a link as tests hold it: says messages or raw bytes, and keeps what it hears."""

from __future__ import annotations

from typing import Generic, TypeVar

from gateway.core.link.framing import Framer, control_messages, frame, worker_messages
from gateway.core.link.messages import ControlMessage, Heartbeat, Hello, Pulse, RequestRecord, WorkerMessage
from gateway.core.stream.summary import Ending, Outcome
from tests.fakes.memory_streams import Streams

Heard = TypeVar("Heard")

READ_BYTES = 64 * 1024
PULSE = Pulse(backend="a", generation_tokens=1.0, read_at=2.0)


def hello(slot: int = 0, *, protocol: int = 1) -> Hello:
    """The first message of a worker."""
    return Hello(protocol=protocol, slot=slot, pid=100 + slot, started_wall=1.0)


def bare_record(number: int, *, model: str = "m") -> RequestRecord:
    """A settled request of which next to nothing is known."""
    return RequestRecord(
        request_id=f"r-{number}",
        slot=0,
        accepted_wall=0.0,
        endpoint="chat",
        method="POST",
        status=200,
        outcome=Outcome.OK,
        ending=Ending.COMPLETE,
        model=model,
    )


def bare_heartbeat(*, sent_at: float = 0.0, dropped: int = 0) -> Heartbeat:
    """A heartbeat of a worker that does nothing."""
    return Heartbeat(
        slot=0, sent_at=sent_at, generation=0, in_flight={}, holding=0, connections=0, outcomes={}, dropped=dropped
    )


class FarEnd(Generic[Heard]):
    """One connection."""

    def __init__(self, streams: Streams, framer: Framer[Heard]) -> None:
        self.streams = streams
        self._framer = framer
        self._waiting: list[Heard] = []

    def say(self, *said: WorkerMessage | ControlMessage | bytes) -> None:
        """Send messages, and bytes that need be none."""
        self.streams[1].write(b"".join(it if isinstance(it, bytes) else frame(it) for it in said))

    async def next(self) -> Heard:
        """The next message.  Raises EOFError when the connection ends before it."""
        while not self._waiting:
            data = await self.streams[0].read(READ_BYTES)
            if not data:
                raise EOFError
            self._waiting += self._framer.feed(data)
        return self._waiting.pop(0)

    async def next_of(self, kind: type) -> Heard:
        """The next message of that kind; those before it are dropped."""
        while not isinstance(message := await self.next(), kind):
            pass
        return message


def control_end(streams: Streams) -> FarEnd[WorkerMessage]:
    """Control as a worker sees it."""
    return FarEnd(streams, worker_messages())


def worker_end(streams: Streams) -> FarEnd[ControlMessage]:
    """A worker as control sees it."""
    return FarEnd(streams, control_messages())
