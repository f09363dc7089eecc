"""Ids of stored responses that say whose they are: what one key made is found by that key alone.

Station admit.  vLLM takes a response's id from the request, so the gateway makes it: random bytes, and a tag of these
and of the key's id.  Whether an id is a key's own can be told from the two alone, at any worker, after any restart and
with nothing remembered; an id that bears another key's tag is as unknown as one that nobody made.  Nothing here is
secret: a key's tag on random bytes that somebody else was given fits none of the ids that the gateway hands out.  Pure:
the random bytes are an argument.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec
from msgspec import Raw, structs

from gateway.core.request.body import ParsedBody

CHANCE_BYTES: Final = 16
_PREFIX: Final = "resp_"
_TAG_BYTES: Final = 16


def response_id(key_id: str, *, chance: bytes) -> str:
    """The id of a response that the key ``key_id`` makes; ``chance``: so many random bytes as ``CHANCE_BYTES`` says."""
    return f"{_PREFIX}{chance.hex()}{_tag(key_id, chance).hex()}"


def is_response_of(thing: str, key_id: str) -> bool:
    """Whether the gateway made the id ``thing`` for the key ``key_id``."""
    try:
        both = bytes.fromhex(thing.removeprefix(_PREFIX))
    except ValueError:
        return False
    chance, tag = both[:CHANCE_BYTES], both[CHANCE_BYTES:]
    # Written anew: of the spellings of one id an engine knows this one only.
    return hmac.compare_digest(tag, _tag(key_id, chance)) and thing == response_id(key_id, chance=chance)


def named(body: ParsedBody, thing: str) -> ParsedBody:
    """The request for a response that is to have the id ``thing``, whatever the client calls it."""
    return structs.replace(body, fields={**body.fields, "request_id": Raw(msgspec.json.encode(thing))})


def _tag(key_id: str, chance: bytes) -> bytes:
    return hmac.new(chance, b"response of " + key_id.encode(), hashlib.sha256).digest()[:_TAG_BYTES]
