"""Requests out of a connection's bytes: heads, and bodies by length or in chunks, each byte looked at once.

Pure but for its own state.  Strict where leniency would let two readers see two requests: sizes are digits and nothing
else, a chunk ends where it says.  ValueError for what is no request; it must not know who answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import msgspec

_HEAD_LIMIT_BYTES: Final = 64 * 1024
_BODY_LIMIT_BYTES: Final = 64 * 1024 * 1024
_LINE_LIMIT_BYTES: Final = 4096
_DIGITS: Final = frozenset(b"0123456789")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


class Head(msgspec.Struct, frozen=True):
    """A request's first line and headers; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[bytes, bytes]


class _Part(Enum):
    SIZE = auto()  # the line before a chunk
    DATA = auto()
    TRAILER = auto()


class RequestReader:
    """Owner of the bytes that came and were not taken yet, and of the request that is half there."""

    __slots__ = ("_body", "_head", "_inbox", "_part", "_scanned", "_wanted")

    def __init__(self) -> None:
        self._inbox = bytearray()
        self._scanned = 0  # so far there is no end of a head
        self._head: Head | None = None
        self._body = bytearray()
        self._part: _Part | None = None  # of a chunked body
        self._wanted = 0  # bytes of the body, or of the chunk with its line end

    def __len__(self) -> int:
        """How many bytes wait to be read."""
        return len(self._inbox)

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self._inbox += data

    def clear(self) -> None:
        """Forget everything."""
        self._inbox.clear()
        self._scanned = 0
        self._forget()

    @property
    def awaits_go_on(self) -> bool:
        """Whether a client waits for ``100 Continue`` before it sends the body."""
        head = self._head
        is_bare = not self._inbox and not self._body and self._part in {None, _Part.SIZE}
        return head is not None and is_bare and head.headers.get(b"expect", b"").lower() == b"100-continue"

    def take(self) -> tuple[Head, bytes] | None:
        """Return the next whole request, or None while there is none; ValueError for what is none."""
        if self._head is None:
            self._head = self._take_head()
            if self._head is None:
                return None
            self._begin_body(self._head.headers)
        if not (self._is_sized() if self._part is None else self._is_chunked()):
            return None
        head, body = self._head, bytes(self._body)
        self._forget()
        return head, body

    def _forget(self) -> None:
        self._head, self._part, self._wanted = None, None, 0
        self._body = bytearray()

    def _take_head(self) -> Head | None:
        end = self._inbox.find(b"\r\n\r\n", self._scanned)
        if end < 0:
            if len(self._inbox) > _HEAD_LIMIT_BYTES:
                raise ValueError("head size")
            self._scanned = max(0, len(self._inbox) - 3)
            return None
        head = _read_head(bytes(self._inbox[:end]))
        del self._inbox[: end + 4]
        self._scanned = 0
        return head

    def _begin_body(self, headers: Mapping[bytes, bytes]) -> None:
        coding = headers.get(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked" or b"content-length" in headers:
                raise ValueError("transfer encoding")
            self._part = _Part.SIZE
            return
        self._wanted = _number(headers.get(b"content-length", b"0"), base=10)
        if self._wanted > _BODY_LIMIT_BYTES:
            raise ValueError("body size")

    def _is_sized(self) -> bool:
        if len(self._inbox) < self._wanted:
            return False
        self._body += self._inbox[: self._wanted]
        del self._inbox[: self._wanted]
        return True

    def _is_chunked(self) -> bool:
        """Whether the last chunk and its trailers have come."""
        while True:
            if self._part is _Part.DATA:
                if len(self._inbox) < self._wanted:
                    return False
                self._take_chunk()
                continue
            line = self._take_line()
            if line is None:
                return False
            if self._part is _Part.TRAILER:
                if not line:
                    return True
                continue
            size = _number(line.partition(b";")[0].strip(b" \t"), base=16)
            if size + len(self._body) > _BODY_LIMIT_BYTES:
                raise ValueError("body size")
            self._part, self._wanted = (_Part.DATA, size + 2) if size else (_Part.TRAILER, 0)

    def _take_chunk(self) -> None:
        end = self._wanted - 2
        if self._inbox[end : self._wanted] != b"\r\n":
            raise ValueError("a chunk that does not end where it says")
        self._body += self._inbox[:end]
        del self._inbox[: self._wanted]
        self._part = _Part.SIZE

    def _take_line(self) -> bytes | None:
        end = self._inbox.find(b"\r\n", 0, _LINE_LIMIT_BYTES)
        if end < 0:
            if len(self._inbox) >= _LINE_LIMIT_BYTES:
                raise ValueError("line size")
            return None
        line = bytes(self._inbox[:end])
        del self._inbox[: end + 2]
        return line


def _number(text: bytes, *, base: int) -> int:
    """Digits and nothing else: no sign, no underscore, no prefix."""
    if not text or not set(text) <= (_HEX if base > 10 else _DIGITS):
        raise ValueError("a size that is no number")
    return int(text[:32], base) if len(text) <= 32 else _BODY_LIMIT_BYTES + 1


def _read_head(head: bytes) -> Head:
    first, *lines = head.split(b"\r\n")
    method, target, version = first.decode("latin-1").split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise ValueError("a header line without a colon")
        headers[name.strip().lower()] = value.strip()
    return Head(method, target, headers)
