"""How deep and how large the JSON of a body is, told without taking it apart.

Station admit.  An engine builds an object of every value, and its grammar compiler follows every level of a schema, so
both are bounded before it sees them.  Brackets are counted at the speed of a search; only where there are more of them
than levels allowed is a field looked at by its elements, and only an element that is still doubtful is stripped of its
strings.  Must not trust a bracket inside a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from gateway.errors import BadRequest

MAX_SPLIT: Final = 4096
"""Brackets in a field up to which it is looked at by its elements: beyond that there may be too many of them."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_OPENERS: Final = (b"[", b"{")
_LIST: Final = msgspec.json.Decoder(list[Raw])
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])


def check_nesting(data: bytes, fields: Mapping[str, Raw], *, depth: int, values: int) -> None:
    """Refuse a body ``data``, well-formed and read into ``fields``, that is too deep or holds too many values."""
    brackets = data.count(b"{") + data.count(b"[")
    if len(data) > values and brackets + data.count(b",") > values:  # brackets and commas of texts among them
        _check_values(data, values)
    if brackets <= depth:
        return
    for name, raw in fields.items():
        value = bytes(raw)
        # By its parts, as long as there cannot be very many of them.
        deeper = _has_deeper_part(value, depth - 2) if brackets <= MAX_SPLIT else _is_deeper(value, depth - 1)
        if deeper:
            raise BadRequest(
                f"{name[:64]} is nested too deeply: the body may have {depth} levels (parameters.json_depth)",
                param=name[:64],
            )


def _check_values(data: bytes, values: int) -> None:
    bare, strings = _STRING.subn(b"", data, count=values + 1)
    if strings > values or bare.count(b",") + bare.count(b"{") + bare.count(b"[") > values:
        raise BadRequest(f"the request body holds more than {values} JSON values (parameters.json_values)")


def _has_deeper_part(value: bytes, depth: int) -> bool:
    """Whether an entry of ``value``, a list or an object, has more than ``depth`` levels itself."""
    if depth < 0 or len(value) <= 2 * depth:
        return depth < 0 and value[:1] in _OPENERS
    match value[:1]:
        case b"[":
            parts: Iterable[Raw] = _LIST.decode(value)
        case b"{":
            parts = _FIELDS.decode(value).values()
        case _:
            return False
    return any(_is_deeper(bytes(part), depth) for part in parts)


def _is_deeper(value: bytes, depth: int) -> bool:
    """Whether ``value`` has more than ``depth`` levels: without its strings, each turn takes the innermost away."""
    if value.count(b"{") + value.count(b"[") <= depth:
        return False
    brackets = _STRING.sub(b"", value).translate(_ONE_KIND, _ALL_BUT_BRACKETS)
    for _ in range(depth):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
