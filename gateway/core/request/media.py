"""Media in messages that an engine would fetch from somewhere, or load as tensors: found with bounded work.

Station admit.  An engine that fetches what a client names is a way into the network that it stands in, so only media
that travel inside the body (``data:``) pass unless the policy says otherwise.  A search for the few keys that can hold
them tells nearly every body in microseconds; only a hit is taken apart, along the path that the engine itself takes.
Must not refuse a tool's argument that happens to be called like a medium.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from gateway.errors import BadRequest

MAX_ENTRIES: Final = 20_000
"""Of lists of messages and parts that are looked at in one body."""

MAX_LEVELS: Final = 12
"""Below a field: lists and objects on the way to a part.  Engines look no deeper than eight."""

FIELDS: Final = (
    "messages",
    "input",
    "previous_input_messages",
    "system",
    "query",
    "queries",
    "documents",
    "items",
    "data",
    "data_1",
    "data_2",
    "text_1",
    "text_2",
)
"""Fields whose values may hold messages or content parts."""

_FOLLOWED: Final = frozenset({"content", "output", "source"})
_URLS: Final = frozenset({"image_url", "audio_url", "video_url", "file_url", "url"})
_TENSORS: Final = frozenset({"prompt_embeds", "image_embeds", "audio_embeds", "video_embeds"})
_LOOKED_AT: Final = _FOLLOWED | _URLS | _TENSORS | {"type"}

_OPENERS: Final = (b"[", b"{")
_SHORT_BYTES: Final = 1024 * 1024
"""That may be read again and again."""

_URL_KEY: Final = b'url"'
_TENSOR_KEY: Final = b'embeds"'
_ESCAPE: Final = b"\\u00"
_NESTED: Final = re.compile(rb"\[\s*[\[{]")
_ESCAPED_LETTER: Final = re.compile(rb"\\u00[4-7]")

_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_LIST: Final = msgspec.json.Decoder(list[Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_TEXT: Final = msgspec.json.Decoder(str)


MAX_READINGS: Final = 5
"""Of a whole field, one for each level or two of it: the longest way to a part of a real request takes four."""


def check_media(fields: Mapping[str, Raw], *, remote: bool, embeds: bool) -> None:
    """Refuse media that are not allowed: ``remote`` ones, or ``embeds`` (tensors) in content parts."""
    for name in FIELDS:
        raw = fields.get(name)
        if raw is not None and may_hold_media(bytes(raw), remote=remote, embeds=embeds):
            _check(raw, name, remote=remote, embeds=embeds)


def may_hold_media(value: bytes, *, remote: bool, embeds: bool) -> bool:
    """Whether a key stands there that matters, or a letter is written so that it cannot be searched for.

    Of a whole body: where not, no field of it has to be looked at.
    """
    if not remote and _URL_KEY in value:
        return True
    if not embeds and _TENSOR_KEY in value:
        return True
    return b"\\" in value and _ESCAPE in value and _ESCAPED_LETTER.search(value) is not None


def _check(value: Raw, name: str, *, remote: bool, embeds: bool) -> None:
    for key, found in _media(value):
        if key in _TENSORS:
            if not embeds:
                raise BadRequest(f"{key} in {name} is not allowed here (parameters.embeds)", param=name)
        elif not remote and not _is_inside(found):
            raise BadRequest(
                f"a {key} in {name} is no data: URL; media from elsewhere are not allowed here"
                " (parameters.remote_media)",
                param=name,
            )


def _media(value: Raw) -> Iterator[tuple[str, Raw]]:
    """Key and value of every medium below ``value``, without recursion."""
    waiting: list[tuple[Raw, int]] = [(value, 0)]
    looked_at, left_bytes = 0, MAX_READINGS * len(memoryview(value)) + _SHORT_BYTES
    while waiting:
        raw, level = waiting.pop()
        view = memoryview(raw)  # not a copy: an image may be long
        first = bytes(view[:1])
        if level == MAX_LEVELS or first not in _OPENERS:
            continue
        left_bytes -= len(view)
        if left_bytes < 0:
            raise BadRequest("media are nested too deeply in so long a field")
        if first == b"{":
            yield from _of_object(_OBJECT.decode(raw), waiting, level + 1)
        elif _NESTED.match(view) or b"{" in bytes(view):  # else a list of texts or numbers
            entries = _entries(raw)
            looked_at += len(entries)
            if looked_at > MAX_ENTRIES:
                raise BadRequest(f"more than {MAX_ENTRIES} messages and parts, media among them")
            for entry in entries:
                if isinstance(entry, dict):
                    if level + 1 < MAX_LEVELS:
                        yield from _of_object(entry, waiting, level + 2)
                else:
                    waiting.append((entry, level + 1))


def _entries(raw: Raw) -> list[dict[str, Raw]] | list[Raw]:
    """The entries of a list: objects, read in the same go, where all of them are."""
    try:
        return _OBJECTS.decode(raw)
    except msgspec.ValidationError:
        return _LIST.decode(raw)


def _of_object(fields: dict[str, Raw], waiting: list[tuple[Raw, int]], level: int) -> Iterator[tuple[str, Raw]]:
    for key in _LOOKED_AT & fields.keys():
        value = fields[key]
        if key in _FOLLOWED:
            waiting.append((value, level))
        elif key == "type":
            kind = _text(value)
            if kind in _TENSORS:
                yield kind, value
        elif key in _TENSORS or bytes(memoryview(value)[:1]) != b"{":
            yield key, value
        else:
            waiting.append((value, level))  # {"url": ...}


def _is_inside(value: Raw) -> bool:
    """Whether a URL says nothing, or holds its medium itself; the engine reads the scheme in any case."""
    if bytes(memoryview(value)[:6]).lower() == b'"data:':
        return True
    text = _text(value)
    return bytes(value) == b"null" or text == "" or (text is not None and text[:5].lower() == "data:")


def _text(value: Raw) -> str | None:
    try:
        return _TEXT.decode(value)
    except msgspec.MsgspecError:
        return None
