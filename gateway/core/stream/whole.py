"""Whole events out of a body that is cut anywhere: what may be passed on, and what must wait.

Station relay, on the slow way.  Pure.  Each byte is looked at once however small the pieces are, and only the
unfinished event is kept; its owner bounds it by :attr:`WholeEvents.rest_bytes`.
"""

from __future__ import annotations

from typing import Final

from gateway.core.stream.http1 import last_event_end

_LONGEST_BLANK: Final = 3
"""Bytes of the longest blank line that can be cut, ``\\n\\r\\n``, so its last byte may come alone."""


class WholeEvents:
    """Cuts a byte stream after its last blank line.  Owner of the unfinished rest."""

    __slots__ = ("_pieces", "_tail", "rest_bytes")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._tail = b""
        self.rest_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """Take bytes; returns the events that are whole now, b"" while there is none."""
        if not self._pieces:
            end = last_event_end(data)
            events = data if end == len(data) else data[:end]
            self._keep(data[end:])
            return events
        end = last_event_end(self._tail + data) - len(self._tail)
        if end <= 0:
            self._keep(data)
            return b""
        events = b"".join(self._pieces) + data[:end]
        self._drop()
        self._keep(data[end:])
        return events

    def take_rest(self) -> bytes:
        """Give up the unfinished rest and return it."""
        rest = b"".join(self._pieces)
        self._drop()
        return rest

    def _keep(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self.rest_bytes += len(data)
            self._tail = (self._tail + data)[-_LONGEST_BLANK:]

    def _drop(self) -> None:
        self._pieces = []
        self._tail = b""
        self.rest_bytes = 0
