"""Which session a request belongs to, for routing: by the client's word, else by how its prompt begins.

Station admit, for pools that route by session.  A later turn of a conversation begins with the bytes of the one before
it, so a prefix stands for it.  Nothing of it is kept but 64 bits.  Pure.
"""

from __future__ import annotations

from typing import Final

from gateway.core.request.body import ParsedBody
from gateway.core.routing.rendezvous import number_of

PROMPTS: Final = ("messages", "prompt", "input")
"""Where a prompt stands, whatever the endpoint."""


def session_of(body: ParsedBody, header: str | None, *, prefix_bytes: int) -> int | None:
    """The session's number; None where nothing tells it."""
    if header:
        return number_of(header.encode("utf-8", "surrogateescape"))
    if prefix_bytes:
        for name in PROMPTS:
            if name in body.fields:
                return number_of(memoryview(body.fields[name])[:prefix_bytes])
    return None
