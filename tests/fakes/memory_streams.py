"""Two ends of a connection in memory, as the stream pairs that asyncio hands out.

For tests of both ends of the link on fake time: no descriptor, no kernel buffer.  Flow control works as on a socket:
an end that does not read makes the other end's ``drain`` wait, and ``break_off`` is a reset.
"""

from __future__ import annotations

import asyncio

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HIGH_WATER_BYTES = 64 * 1024


class MemoryTransport(asyncio.Transport):
    """One direction out; delivers to the peer's protocol on the next turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.StreamReaderProtocol
        self.peer: MemoryTransport
        self._unsent = bytearray()
        self._closing = False
        self._lost = False
        self._reading = True
        self._told_to_pause = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self._unsent += data
        asyncio.get_running_loop().call_soon(self._deliver)
        if len(self._unsent) > HIGH_WATER_BYTES and not self._told_to_pause:
            self._told_to_pause = True
            self.protocol.pause_writing()

    def _deliver(self) -> None:
        if not self.peer._reading or self.peer._lost:
            return
        if self._unsent:
            data = bytes(self._unsent)
            self._unsent.clear()
            self.peer.protocol.data_received(data)
        if self._told_to_pause:
            self._told_to_pause = False
            self.protocol.resume_writing()
        if self._closing:
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        """This end is over; the peer sees the end of the stream, or the reset."""
        if self._lost:
            return
        self._lost = self._closing = True
        self.protocol.connection_lost(error)
        if not self.peer._lost:
            if error is None:
                self.peer.protocol.eof_received()
            self.peer._lose(error)

    def break_off(self) -> None:
        """Both ends see a reset, as when the other process is killed with bytes under way."""
        self._lose(ConnectionResetError("broken off by the test"))

    def abort(self) -> None:
        self._closing = True
        self._unsent.clear()
        asyncio.get_running_loop().call_soon(self._lose, None)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        asyncio.get_running_loop().call_soon(self.peer._deliver)

    def is_reading(self) -> bool:
        return self._reading

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        raise NotImplementedError("streams keep their protocol")


def _end(transport: MemoryTransport) -> Streams:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport.protocol = asyncio.StreamReaderProtocol(reader)
    transport.protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, transport.protocol, reader, loop)


def memory_pair() -> tuple[Streams, Streams]:
    """Both ends of a new connection; must be called on a running loop."""
    left, right = MemoryTransport(), MemoryTransport()
    left.peer, right.peer = right, left
    return _end(left), _end(right)


def transport_of(streams: Streams) -> MemoryTransport:
    """The transport behind one end: to stall it (``pause_reading``) or to break it off."""
    transport = streams[1].transport
    if not isinstance(transport, MemoryTransport):
        raise TypeError("not an in-memory end")
    return transport
