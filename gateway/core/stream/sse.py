"""Incremental framing of server-sent events: bytes in any cut become whole events.

Relay station, inside the tap.  Follows the event stream format of the HTML standard: LF, CR and CRLF end a line, a
blank line ends an event, a byte order mark at the very start is dropped, comments and unknown fields are skipped,
several data lines are joined by LF, an event cut off by the end of the stream is dropped.  Most reads hold exactly
one `data: ...` event or a few of them: those are cut out without looking at single lines.  Must not look inside
data, and must not hold more than one event of bounded size.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

# Name ("" where the event has none) and data.
Event: TypeAlias = tuple[str, bytes]

_BOM: Final = b"\xef\xbb\xbf"
_FIELD: Final = re.compile(rb"(?:\A|[\r\n])[^:\r\n]")

# A beginning up to this size is put before the next piece and cut again: cheaper than line by line.  Above it that
# would cost the square of an event's length when it comes in crumbs.
_TAIL_BYTES: Final = 4096


class EventFramer:
    """Cuts a byte stream into events; the result depends on the bytes alone, never on how they were cut.

    An event whose lines sum to more than ``max_event_bytes`` is skipped and counted in ``oversize``.
    """

    __slots__ = (
        "_busy",
        "_data",
        "_has_data",
        "_limit",
        "_line",
        "_name",
        "_size",
        "_skip_lf",
        "_skipping",
        "_started",
        "_tail",
        "_tail_limit",
        "oversize",
    )

    def __init__(self, max_event_bytes: int) -> None:
        self._limit = max_event_bytes
        self._busy = True  # until the first line is over: it may begin with a byte order mark
        self._started = False
        self._tail = b""  # the beginning of an event as it came, while it is short and nothing else is held
        self._tail_limit = min(_TAIL_BYTES, max_event_bytes)
        self._line = bytearray()
        self._name = ""
        self._data = bytearray()
        self._has_data = False
        self._size = 0
        self._skip_lf = False
        self._skipping = False
        self.oversize = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is held: the next byte begins an event."""
        return not (self._busy or self._tail or self._skip_lf)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that end in ``data``, in order."""
        events: list[Event] = []
        if self._skip_lf or b"\r" in data:
            data = self._with_lf_only(data)
        if self._tail:
            data = self._tail + data
            self._tail = b""
        at = self._by_lines(data, events, until_idle=True) if self._busy else 0
        if at < len(data):
            self._by_blocks(data[at:] if at else data, events)
        return events

    def _with_lf_only(self, data: bytes) -> bytes:
        """LF for every line end.  A CR at the end counts at once; should LF come next, it belongs to it."""
        if not data:
            return data
        if self._skip_lf and data[0] == 0x0A:
            data = data[1:]
        self._skip_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def single(self, data: bytes) -> bytes | None:
        """Return the event's data when ``data`` is exactly one unnamed event of one line and nothing is held.

        None says nothing about ``data``, which is then for `feed`.  Most reads of a stream are of this kind, and this
        costs a third of `feed`.
        """
        size = len(data)
        if (
            self._busy
            or self._tail
            or self._skip_lf
            or data[:6] != b"data: "
            or data.find(b"\n") != size - 2
            or data[size - 1] != 0x0A
            or b"\r" in data
            or size - 2 > self._limit
        ):
            return None
        return data[6:-2]

    # --- by blocks: nothing held ----------------------------------------------------------------------------------

    def _by_blocks(self, data: bytes, events: list[Event]) -> None:
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        for block in blocks:
            if block[:6] == b"data: " and len(block) <= self._limit and b"\n" not in block:
                events.append(("", block[6:]))
            elif not (_is_nothing(block) and len(block) <= self._limit) and not self._named_block(block, events):
                self._by_lines(block + b"\n\n", events)
        if len(rest) <= self._tail_limit:
            self._tail = rest
        else:
            self._by_lines(rest, events)

    def _named_block(self, block: bytes, events: list[Event]) -> bool:
        """Take a block of exactly one event line and one data line; say whether it was one."""
        name_end = block.find(b"\n")
        if (
            block[:7] != b"event: "
            or block[name_end + 1 : name_end + 7] != b"data: "
            or block.find(b"\n", name_end + 1) != -1
            or len(block) > self._limit
        ):
            return False
        events.append((block[7:name_end].decode("utf-8", "replace"), block[name_end + 7 :]))
        return True

    # --- by lines: anything --------------------------------------------------------------------------------------

    def _by_lines(self, data: bytes, events: list[Event], *, until_idle: bool = False) -> int:
        """Read lines; return how far, which is the end unless ``until_idle`` and an event has just ended."""
        at, end = 0, len(data)
        while at < end:
            stop = data.find(b"\n", at)
            if stop == -1:
                self._hold(data[at:])
                break
            self._hold(data[at:stop])
            at = stop + 1
            if self._end_line(events) and until_idle:
                self._busy = False
                return at
        self._busy = bool(not self._started or self._line or self._has_data or self._size)
        return end

    def _hold(self, piece: bytes) -> None:
        if self._skipping:
            # What is skipped matters only as "this line is not blank".
            self._line[:] = piece[:1] or self._line
            return
        self._line += piece
        if len(self._line) > self._limit:
            self._skip_event()

    def _end_line(self, events: list[Event]) -> bool:
        """Take the held line as whole; say whether it was a blank one."""
        line = bytes(self._line)
        self._line.clear()
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            self._end_event(events)
            return True
        if not self._skipping and line[0] != 0x3A:
            self._take_field(line)
        return False

    def _take_field(self, line: bytes) -> None:
        self._size += len(line)
        if self._size > self._limit:
            self._skip_event()
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            if self._has_data:
                self._data += b"\n"
            self._data += value
            self._has_data = True
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")

    def _skip_event(self) -> None:
        self.oversize += 1
        self._skipping = True
        del self._line[1:]
        self._data.clear()
        self._has_data = False
        self._size = 1

    def _end_event(self, events: list[Event]) -> None:
        if self._has_data:
            events.append((self._name, bytes(self._data)))
            self._data.clear()
            self._has_data = False
        self._name = ""
        self._size = 0
        self._skipping = False


def has_field(data: bytes) -> bool:
    """Whether a line of ``data``, which begins with a line, is a field: neither a comment nor blank."""
    return _FIELD.search(data) is not None


def _is_nothing(block: bytes) -> bool:
    """Whether a block is empty or one comment line: a backend may send any number of those."""
    return not block or (block[0] == 0x3A and b"\n" not in block)
