"""An event as one line of JSON: when, how urgent, its name, then its fields.

Shared by the logs of all processes; the fields are encoded once, for the line and for the live feed.  Every value is
escaped, so a line is always one event.  Must not write anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from gateway.telemetry.eventspec import Level

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def timestamp(at_wall: float) -> str:
    """Seconds since 1970 as UTC in ISO 8601."""
    return datetime.fromtimestamp(at_wall, tz=UTC).isoformat().replace("+00:00", "Z")


def encode_fields(fields: Mapping[str, object] | Struct) -> bytes:
    """The fields as a JSON object; what JSON has no word for is told as text."""
    return _encode(fields)


class JsonLines:
    """Makes the lines of one log.  Owns the text of the current second: most lines share theirs with the last one."""

    def __init__(self) -> None:
        self._second = -1
        self._text = b""

    def line(self, level: Level, name: str, data: bytes, *, at_wall: float) -> bytes:
        """The line of an event, without its newline; ``data`` are its encoded fields."""
        second = int(at_wall)
        if second != self._second:
            self._second, self._text = second, timestamp(second)[:-1].encode()
        return b'{"ts":"%b.%06dZ","level":%b,"event":%b%b' % (
            self._text,
            (at_wall - second) * 1e6,
            _encode(level),
            _encode(name),
            b"}" if data == b"{}" else b"," + data[1:],
        )
