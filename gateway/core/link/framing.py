"""Frames of the link: four bytes of length (big-endian), then one msgpack message.

A pure byte machine at both ends of the link: bytes in, typed messages out.  A frame over the bound is refused from its
four length bytes, before its body is kept, so a broken peer cannot fill the memory.  After a fault the rest of the
bytes mean nothing: the machine stays faulty and the connection has to end.  Must not log and knows no transport.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from gateway.core.link.messages import ControlMessage, WorkerMessage
from gateway.errors import LinkGarbled

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Bound of one message: far above a batch of 256 records or a snapshot with every model card."""

_LENGTH_BYTES: Final = 4

Message = TypeVar("Message")


class Framer(Generic[Message]):
    """Bytes of one connection -> messages.  Owns the bytes of the unfinished frame, at most the bound of them."""

    def __init__(self, message_type: Any, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        """``message_type`` is the union of structs that the peer may send; ``max_bytes`` bounds one message."""
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(message_type)
        self._max_bytes = max_bytes
        self._pending = bytearray()
        self._fault = ""

    def feed(self, data: bytes) -> list[Message]:
        """Messages completed by ``data``, in order.

        Raises LinkGarbled for a frame over the bound, for bytes that are no message of the expected types, and ever
        after; messages that were whole before the fault in the same ``data`` are lost with it.
        """
        if self._fault:
            raise LinkGarbled(self._fault)
        self._pending += data
        messages: list[Message] = []
        start = 0
        while (body := self._body_at(start)) is not None:
            messages.append(self._decode(body))
            start += _LENGTH_BYTES + len(body)
        del self._pending[:start]
        return messages

    def _body_at(self, start: int) -> bytes | None:
        body_start = start + _LENGTH_BYTES
        if len(self._pending) < body_start:
            return None
        length = int.from_bytes(self._pending[start:body_start], "big")
        if length > self._max_bytes:
            raise self._broken(f"a message of {length} bytes is over the bound of {self._max_bytes}")
        if len(self._pending) < body_start + length:
            return None
        return bytes(self._pending[body_start : body_start + length])

    def _decode(self, body: bytes) -> Message:
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._broken(f"not a message of the link: {error}") from error

    def _broken(self, fault: str) -> LinkGarbled:
        self._fault = fault
        self._pending.clear()
        return LinkGarbled(fault)


def worker_messages(*, max_bytes: int = MAX_MESSAGE_BYTES) -> Framer[WorkerMessage]:
    """The machine for control's end: reads what a worker sends."""
    return Framer(WorkerMessage, max_bytes=max_bytes)


def control_messages(*, max_bytes: int = MAX_MESSAGE_BYTES) -> Framer[ControlMessage]:
    """The machine for a worker's end: reads what control sends."""
    return Framer(ControlMessage, max_bytes=max_bytes)


def frame(message: WorkerMessage | ControlMessage, *, max_bytes: int = MAX_MESSAGE_BYTES) -> bytes:
    """``message`` as one frame.  Raises LinkGarbled when it is over the bound (the peer would hang up).

    Or when it holds a number that no message can: that must cost the message, not the connection.
    """
    try:
        body = msgspec.msgpack.encode(message)
    except OverflowError as error:
        raise LinkGarbled(f"a {type(message).__name__} holds a number beyond 64 bits") from error
    if len(body) > max_bytes:
        raise LinkGarbled(f"a {type(message).__name__} of {len(body)} bytes is over the bound of {max_bytes}")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body
