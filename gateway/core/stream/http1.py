"""HTTP/1.1 responses as bytes: the head, and where a body's chunks and events end.

Station relay, upstream side.  Pure machines that are cut anywhere: :func:`parse_head` for the head,
:class:`ChunkedBody`, :class:`SizedBody` and :class:`OpenBody` for the three ways in which a body can end (RFC 9112,
sections 6.3 and 7.1).  A purpose-made scanner, since forwarding the upstream's own framing needs the byte positions
that a callback parser hides; httptools is its reference in the tests.  Must not decode an event.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_SIZE_LINE_BYTES: Final = 256
MAX_LENGTH_DIGITS: Final = 18
TERMINATOR: Final = b"0\r\n\r\n"

SHORT_MAX_BYTES: Final = 2048
"""Of a read that is looked at as one short chunk."""

_NEVER: Final = b"\x00"


def short_beginnings(opening: bytes) -> tuple[bytes, ...]:
    """For each length of a read up to `SHORT_MAX_BYTES`: how it begins if it is one whole chunk led by ``opening``.

    That is its size line, in lower case as every server known writes it, and ``opening``, which begins with the line's
    end.  Nearly all events of one token are such reads (200 to 300 bytes); comparing is quicker than parsing, and as
    strict.
    """
    beginnings = [_NEVER] * (SHORT_MAX_BYTES + 1)
    for size in range(1, SHORT_MAX_BYTES):
        line = b"%x" % size
        length = len(line) + 2 + size + 2
        if length <= SHORT_MAX_BYTES:
            beginnings[length] = line + opening
    return tuple(beginnings)


_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_STATUS: Final = re.compile(rb"(HTTP/1\.[01]) ([1-9][0-9]{2})(?: ([^\r\n\x00]*))?")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\x00]*)")


class BadFraming(Exception):
    """What came is not HTTP/1.1; the text says what was wrong, without quoting a body."""


class ResponseHead(Struct, frozen=True):
    """Status line and headers; names in lower case, values stripped, order kept.

    ``length`` is Content-Length or None; ``chunked`` wins over it; ``persistent`` says whether the connection may be
    used again after the body.
    """

    status: int
    reason: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    length: int | None
    chunked: bool
    persistent: bool
    content_type: bytes

    @property
    def event_stream(self) -> bool:
        """Whether the body is Server-Sent Events."""
        return self.content_type.startswith(b"text/event-stream")


def parse_head(data: bytes | bytearray) -> tuple[ResponseHead, int] | None:
    """Parse a response head at the start of ``data``; skips interim (1xx) heads.

    Returns the head and the offset of the body's first byte, or None when more bytes are needed.  Raises BadFraming.
    """
    start = 0
    while True:
        end = data.find(b"\r\n\r\n", start)
        if end < 0:
            if len(data) > MAX_HEAD_BYTES:
                raise BadFraming("response head over 64 KiB")
            if len(data) - start >= 5 and data[start : start + 5] != b"HTTP/":
                raise BadFraming("not an HTTP response")
            return None
        if end > MAX_HEAD_BYTES:
            raise BadFraming("response head over 64 KiB")
        lines = bytes(data[start:end]).split(b"\r\n")
        status, reason, version = _status_line(lines[0])
        start = end + 4
        if status >= 200:
            return _head(status, reason, http_1_1=version == b"HTTP/1.1", lines=lines), start
        if status == 101:
            raise BadFraming("the backend switched protocols unasked")


def _status_line(line: bytes) -> tuple[int, bytes, bytes]:
    parts = _STATUS.fullmatch(line)
    if parts is None:
        raise BadFraming("malformed status line")
    return int(parts[2]), parts[3] or b"", parts[1]


def _head(status: int, reason: bytes, *, http_1_1: bool, lines: list[bytes]) -> ResponseHead:
    headers: list[tuple[bytes, bytes]] = []
    length: int | None = None
    chunked = False
    persistent = http_1_1
    content_type = b""
    for line in lines[1:]:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise BadFraming("malformed header line")
        name, value = field[1].lower(), field[2].rstrip(b" \t")
        headers.append((name, value))
        if name == b"content-length":
            if not value.isdigit() or len(value) > MAX_LENGTH_DIGITS or (length is not None and length != int(value)):
                raise BadFraming("malformed or conflicting Content-Length")
            length = int(value)
        elif name == b"transfer-encoding":
            if chunked or value.lower() != b"chunked":
                raise BadFraming("unknown Transfer-Encoding")
            chunked = True
        elif name == b"connection":
            options = {option.strip() for option in value.lower().split(b",")}
            persistent = b"close" not in options and (persistent or b"keep-alive" in options)
        elif name == b"content-type":
            content_type = value.lower()
    if status in (204, 304):
        length, chunked = 0, False
    return ResponseHead(status, reason, tuple(headers), None if chunked else length, chunked, persistent, content_type)


def ends_event(body: bytes | bytearray) -> bool:
    """Whether ``body`` ends with the blank line that ends a Server-Sent Event (LF or CRLF)."""
    return body.endswith((b"\n\n", b"\n\r\n", b"\r\r"))


def last_event_end(body: bytes | bytearray) -> int:
    """Offset just after the last blank line in ``body``, 0 when there is none."""
    lf = body.rfind(b"\n\n")
    crlf = body.rfind(b"\n\r\n")
    cr = body.rfind(b"\r\r")
    return max(lf + 2 if lf >= 0 else 0, crlf + 3 if crlf >= 0 else 0, cr + 2 if cr >= 0 else 0)


def chunk(body: bytes) -> bytes:
    """``body`` as one HTTP chunk; empty stays empty (an empty chunk would end the body)."""
    return b"%x\r\n%b\r\n" % (len(body), body) if body else b""


class ChunkedBody:
    """Scans a chunked body.  Owner of the bytes of the chunk that has not come whole.

    :meth:`feed` returns the payloads of the chunks that are whole now.  :attr:`raw` then holds those chunks as they
    came, framing included, when it may be forwarded as is: that is, no terminator, extension or trailer is in it.
    """

    __slots__ = ("_held", "_needed", "ended", "excess", "raw")

    def __init__(self) -> None:
        self._held: bytes | bytearray = b""
        self._needed = 0
        self.ended = False
        self.excess = False
        self.raw: bytes | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes kept because their chunk is not whole."""
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes off the wire; see the class.  Raises BadFraming; :attr:`ended` is set by the last chunk."""
        self.raw = None
        if self._held:
            if len(self._held) + len(data) < self._needed:
                self._held = bytearray(self._held) if type(self._held) is bytes else self._held
                self._held += data
                return []
            data = bytes(self._held) + data
            self._held = b""
        return self._scan(data)

    def _scan(self, data: bytes) -> list[bytes]:
        payloads: list[bytes] = []
        at = 0
        size = len(data)
        plain = True
        while at < size:
            eol = data.find(b"\r\n", at, at + MAX_SIZE_LINE_BYTES)
            if eol < 0:
                self._needed = 0
                break
            length, bare = _chunk_size(data[at:eol])
            plain &= bare
            end = eol + 2 + length
            if length == 0:
                self._trailer(data, eol)
                break
            if end + 2 > size:
                self._needed = end + 2 - at
                break
            if data[end : end + 2] != b"\r\n":
                raise BadFraming("chunk data not followed by CRLF")
            payloads.append(data[eol + 2 : end])
            at = end + 2
        if at < size and not self.ended:
            self._hold(data[at:])
        if payloads and plain:
            self.raw = data if at == size else data[:at]
        return payloads

    def _hold(self, unfinished: bytes) -> None:
        """Keep what is not whole; a size line or trailers without an end are refused."""
        if self._needed == 0 and len(unfinished) > MAX_HEAD_BYTES:
            raise BadFraming("chunk size line or trailers over 64 KiB")
        self._held = unfinished

    def _trailer(self, data: bytes, eol: int) -> None:
        """Note whether the last chunk, whose size line ends at ``eol``, has come whole with its trailer section."""
        blank = data.find(b"\r\n\r\n", eol)
        self._needed = 0
        self.ended = blank >= 0
        self.excess = self.ended and blank + 4 < len(data)


def _chunk_size(line: bytes) -> tuple[int, bool]:
    """Size of a chunk and whether its line is nothing but hexadecimal digits (extensions are legal, not forwarded)."""
    digits, semicolon, _ = line.partition(b";")
    bare = not semicolon
    if not bare:
        digits = digits.rstrip(b" \t")
    if not digits or len(digits) > 15 or not _HEX.issuperset(digits):
        raise BadFraming("malformed chunk size")
    return int(digits, 16), bare


class SizedBody:
    """A body of Content-Length bytes."""

    __slots__ = ("_left", "ended", "excess", "raw")

    held_bytes = 0

    def __init__(self, length: int) -> None:
        self._left = length
        self.ended = length == 0
        self.excess = False
        self.raw: bytes | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes off the wire; returns the part that belongs to the body."""
        if len(data) > self._left:
            self.excess = True
            data = data[: self._left]
        self._left -= len(data)
        self.ended = self._left == 0
        return [data] if data else []


class OpenBody:
    """A body that ends with the connection (HTTP/1.0 style); only :meth:`finish` ends it."""

    __slots__ = ("ended", "excess", "raw")

    held_bytes = 0

    def __init__(self) -> None:
        self.ended = False
        self.excess = False
        self.raw: bytes | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes off the wire; all of them belong to the body."""
        return [data] if data else []

    def finish(self) -> None:
        """The connection closed: this is how such a body ends."""
        self.ended = True


Body = ChunkedBody | SizedBody | OpenBody


def body_of(head: ResponseHead) -> Body:
    """The machine for the body that follows ``head`` (RFC 9112 section 6.3)."""
    if head.chunked:
        return ChunkedBody()
    if head.length is not None:
        return SizedBody(head.length)
    return OpenBody()
