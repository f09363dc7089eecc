"""One Server-Sent Event taken apart and put together again with other data.

Station relay, inside the edits.  Everything of an event but its data lines stays as it is: other fields, comments, the
line ends of its blank line.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from gateway.core.stream import chunk

Fields: TypeAlias = dict[str, Raw]

UNREADABLE: Final = (*chunk.UNREADABLE, UnicodeDecodeError)
"""What msgspec raises for bytes that are not what was expected; the last for keys that are no UTF-8."""

NULL: Final = Raw(b"null")
FIELDS: Final = msgspec.json.Decoder(Fields)
ENTRIES: Final = msgspec.json.Decoder(list[Fields])
INDEX: Final = msgspec.json.Decoder(int)
WORD: Final = msgspec.json.Decoder(str)
encode: Final = msgspec.json.encode


class Frame(NamedTuple):
    """``before``: lines other than data, whole; ``blank``: the line ends that close the event."""

    before: bytes
    data: bytes
    blank: bytes

    def with_data(self, data: bytes) -> bytes:
        """The event with ``data``, which has no line end, in place of its own."""
        return self.before + b"data: " + data + self.blank


def take_apart(event: bytes) -> Frame | None:
    """The parts of one whole event; None when it has no data."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        return Frame(b"", event[6:-2], b"\n\n")
    named_end = event.find(b"\n") + 1
    if (
        event.startswith(b"event: ")
        and event.startswith(b"data: ", named_end)
        and event.find(b"\n", named_end) == len(event) - 2
        and b"\r" not in event
    ):
        return Frame(event[:named_end], event[named_end + 6 : -2], b"\n\n")
    body = event.rstrip(b"\r\n")
    before = bytearray()
    data: list[bytes] = []
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        else:
            before += line + b"\n"
    return Frame(bytes(before), b"\n".join(data), event[len(body) :]) if data else None


def named(name: str, event: bytes) -> bytes:
    """``event`` with its name before its data; one that has a name keeps that."""
    if event.startswith(b"event:") or b"\nevent:" in event:
        return event
    return b"event: " + name.encode("ascii") + b"\n" + event


def is_given(fields: Fields, name: str) -> bool:
    """Whether a field is there and not null."""
    raw = fields.get(name)
    return raw is not None and raw != NULL


def text_inside(fields: Fields, name: str) -> bytes:
    """The JSON text of a string without its quotes; b"" where there is none."""
    raw = fields.get(name)
    if raw is None:
        return b""
    text = bytes(raw)
    return text[1:-1] if text.startswith(b'"') else b""


def quoted(*inside: bytes) -> Raw:
    """The JSON string of pieces that :func:`text_inside` gave, or plain ASCII without quotes and backslashes."""
    return Raw(b'"' + b"".join(inside) + b'"')
