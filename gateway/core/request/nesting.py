"""How deep and how large the JSON of a body is, told without taking it apart.

Station admit.  An engine builds an object of every value, and its grammar compiler follows every level of a schema, so
both are bounded before it sees them.  Brackets and commas are counted first, those in texts among them: nearly every
body is told by that.  Of any other everything but quotes, brackets and commas is taken away, some milliseconds a
mebibyte at worst whatever it holds, and what is left is stripped of its strings.  Must not trust a bracket in a string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from gateway.errors import BadRequest

MAX_MARKS: Final = 4_000_000
"""In a body that has to be looked at closely, those in texts among them: as many as a prompt of a million tokens has,
and more.  They take 0.2 s."""

_MARKS: Final = b'"[]{},'
_ALL_BUT_MARKS: Final = bytes(set(range(256)) - set(_MARKS))
_STRING: Final = re.compile(rb'"[^"]*+"')
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")


def check_nesting(data: bytes, fields: Mapping[str, Raw], *, depth: int, values: int) -> None:
    """Refuse a body ``data``, well-formed and read into ``fields``, that is too deep or holds too many values."""
    long = len(data) > values  # a shorter one cannot hold more
    counted = data.translate(None, _ALL_BUT_MARKS) if long else data  # one look at each byte instead of three
    openers = _openers(counted)
    many = long and openers + counted.count(b",") > values
    if openers <= depth and not many:
        return
    if long and data.count(b"\\") + len(counted) > MAX_MARKS:
        raise BadRequest(f"the request body holds more than {MAX_MARKS} quotes, brackets, commas and backslashes")
    marks = _marks(data)
    if many:
        _check_values(marks, values)
    if _is_deeper(marks, depth):
        name = next((name for name, raw in fields.items() if _is_deeper(_marks(bytes(raw)), depth - 1)), "")
        raise BadRequest(
            f"{name[:64]} is nested too deeply: the body may have {depth} levels (parameters.json_depth)",
            param=name[:64],
        )


def _openers(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[")


def _marks(data: bytes) -> bytes:
    """Quotes that begin or end a string, brackets and commas, in their order; those in strings among the latter two."""
    if b"\\" in data:  # of a row of backslashes each pair stands for one; a last single one is a quote's or a letter's
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return data.translate(None, _ALL_BUT_MARKS)


def _check_values(marks: bytes, values: int) -> None:
    many = marks.count(b'"') // 2 > values
    if not many:
        bare = _STRING.sub(b"", marks)
        many = bare.count(b",") + _openers(bare) > values
    if many:
        raise BadRequest(f"the request body holds more than {values} JSON values (parameters.json_values)")


def _is_deeper(marks: bytes, depth: int) -> bool:
    """Whether there are more than ``depth`` levels: without its strings, each turn takes the innermost away."""
    if _openers(marks) <= depth:
        return False
    brackets = _STRING.sub(b"", marks).translate(_ONE_KIND, b",")
    for _ in range(depth):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
