"""Bodies of requests to the admin API: as text, or as a struct.

Each is bounded in size and time; what cannot be read is the caller's fault and said in one sentence.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from gateway.admin.limits import AdminLimits
from gateway.errors import BadRequest, BodyTimeout, BodyTooLarge

Shape = TypeVar("Shape", bound=Struct)


async def read_text(request: web.Request, limits: AdminLimits) -> str:
    """The body as text.  Raises BodyTimeout, BodyTooLarge or BadRequest."""
    try:
        async with asyncio.timeout(limits.body_s):
            body = await request.read()
    except TimeoutError as error:
        raise BodyTimeout(f"the body did not arrive within {limits.body_s:g} s") from error
    except web.HTTPRequestEntityTooLarge as error:
        raise BodyTooLarge(f"the body is larger than {limits.body_bytes} bytes") from error
    except web.RequestPayloadError as error:
        raise BadRequest("the body cannot be read as it was sent") from error
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest("the body is not UTF-8 text") from error


async def read_json(request: web.Request, limits: AdminLimits, into: type[Shape]) -> Shape:
    """The body as JSON of that shape.  Raises BodyTimeout, BodyTooLarge or BadRequest."""
    text = await read_text(request, limits)
    try:
        return msgspec.json.decode(text, type=into)
    except (msgspec.MsgspecError, RecursionError) as error:
        words, _, place = str(error).partition(" - at `$")
        raise BadRequest(
            f"the body is not what is taken here: {words[:200]}", param=place.strip(".`") or None
        ) from None
