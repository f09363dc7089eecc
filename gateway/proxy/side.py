"""Side streams: reasoning that goes to whoever holds the same key, beside the answer that it belongs to.

Beside the stations.  The shelf is the owner of this worker's side streams; each is filled by the relay of its answer
and never makes it wait: a reader that falls behind is dropped.  Ids cannot be guessed and name their worker, so that
another one can pass a reader on (:mod:`gateway.proxy.side_door`).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from gateway.core.routing.endpoints import SIDE_ID
from gateway.core.routing.snapshot import SidePolicy
from gateway.core.stream.delivery.side import SideBuffer, SideEvents
from gateway.core.stream.envelope import DONE_EVENT, error_event
from gateway.core.stream.summary import Dialect
from gateway.errors import BackendDied, Overloaded, ReaderTooSlow

_ID_BYTES: Final = 24
_RETRY_AFTER_S: Final = 2.0

TOO_SLOW: Final = error_event(
    ReaderTooSlow("the reasoning was read too slowly; what has not been read is lost"), Dialect.CHAT
)
CUT_SHORT: Final = error_event(BackendDied("the answer that this reasoning belongs to broke off"), Dialect.CHAT)


class SideReader(Protocol):
    """Somebody who reads one side stream."""

    @property
    def unsent_bytes(self) -> int:
        """What it has not taken yet."""
        ...

    def write(self, events: bytes) -> None:
        """Whole events."""
        ...

    def over(self) -> None:
        """Nothing more will come."""
        ...


class SideStream:
    """The reasoning of one answer.  Owner of what is kept of it and of the list of its readers."""

    def __init__(self, side_id: str, key_id: str, *, policy: SidePolicy) -> None:
        self.id = side_id
        self.key_id = key_id
        self.events = SideEvents()
        self.announced = False  # the client has been told of it
        self.ended_at: float | None = None
        self.keep_s = policy.keep_s
        self._limit_bytes = policy.buffer_bytes
        self._buffer = SideBuffer(policy.buffer_bytes)
        self._readers: list[SideReader] = []

    def take(self, index: int, inside: bytes) -> None:
        """A piece of reasoning of the choice ``index``: the inside of a JSON string."""
        self._add(self.events.event(index, inside))

    def announce(self) -> bytes:
        """The id, for the head of the answer."""
        self.announced = True
        return self.id.encode("ascii")

    def end(self, *, well: bool, now: float) -> None:
        """The answer is over."""
        if self.ended_at is not None:
            return
        self._add(DONE_EVENT if well else CUT_SHORT)
        self.ended_at = now
        for reader in self._readers:
            reader.over()
        self._readers.clear()

    def join(self, reader: SideReader) -> None:
        """Give ``reader`` what is kept, and then what comes."""
        reader.write(self._buffer.kept())
        if self.ended_at is None:
            self._readers.append(reader)
        else:
            reader.over()

    def leave(self, reader: SideReader) -> None:
        """The reader has gone."""
        if reader in self._readers:
            self._readers.remove(reader)

    def _add(self, event: bytes) -> None:
        self._buffer.add(event)
        for reader in tuple(self._readers):
            if reader.unsent_bytes + len(event) > self._limit_bytes:
                self._readers.remove(reader)
                reader.write(TOO_SLOW)
                reader.over()
            else:
                reader.write(event)


class SideShelf:
    """The side streams of one worker."""

    def __init__(self, *, slot: int, clock: Callable[[], float]) -> None:
        self.slot = slot
        self._clock = clock
        self._streams: dict[str, SideStream] = {}

    def open(self, key_id: str, policy: SidePolicy) -> SideStream:
        """A new stream for the holder of a key.  Raises Overloaded when there is no place for one."""
        if len(self._streams) >= policy.streams:
            self._make_room()
        side_id = f"{self.slot:x}-{secrets.token_urlsafe(_ID_BYTES)}"
        stream = self._streams[side_id] = SideStream(side_id, key_id, policy=policy)
        return stream

    def find(self, side_id: str, key_id: str) -> SideStream | None:
        """The stream of that id, for the holder of its key; None for anybody else."""
        stream = self._streams.get(side_id)
        if stream is None or self._is_over(stream):
            return None
        return stream if hmac.compare_digest(stream.key_id.encode(), key_id.encode()) else None

    def finish(self, stream: SideStream, *, well: bool) -> None:
        """The request that ``stream`` belongs to is settled; one that nobody was told of goes at once."""
        stream.end(well=well, now=self._clock())
        if not stream.announced:
            del self._streams[stream.id]

    def sweep(self) -> None:
        """Let go of what has been over for long enough."""
        for stream in [it for it in self._streams.values() if self._is_over(it)]:
            del self._streams[stream.id]

    def _is_over(self, stream: SideStream) -> bool:
        return stream.ended_at is not None and self._clock() - stream.ended_at > stream.keep_s

    def _make_room(self) -> None:
        """Let the oldest one go that has ended."""
        for stream in self._streams.values():
            if stream.ended_at is not None:
                del self._streams[stream.id]
                return
        raise Overloaded("too many answers have their reasoning aside; try again shortly", retry_after_s=_RETRY_AFTER_S)


def slot_of(side_id: str) -> int | None:
    """The worker that an id names; None for what is no id."""
    return int(side_id.partition("-")[0], 16) if SIDE_ID.fullmatch(side_id) else None
