"""What a client may ask of its own key: ``GET /v1/usage``, answered by control, which knows of all workers.

Beside the stations.  The question follows this worker's records on the link, so whoever asks after its answer finds it
counted.  Owner of the questions that are open.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.core.admission.keys import Key
from gateway.core.admission.quota import DAY_S, Resource
from gateway.core.admission.usage import KeyUsage, UsageCount
from gateway.core.link.messages import AskUsage, UsageTold
from gateway.errors import UnknownEndpoint
from gateway.proxy import envelope
from gateway.proxy.visit import Visit
from gateway.proxy.wire import ClientWire
from gateway.refusals import ControlAway

PATIENCE_S: Final = 2.0


class UsageAnswer(Struct, frozen=True, kw_only=True):
    """What a key is told of itself.  A limit, and what is left of it, is null where there is none.

    ``approximate``: parts of today could not be counted.
    """

    object: str = "usage"
    key: str
    name: str
    today: dict[str, Any]
    minute: dict[str, Any]
    concurrency: dict[str, Any]
    models: dict[str, dict[str, int]]
    approximate: bool


class UsageDesk:
    """See the module; one a worker."""

    def __init__(self, ask: Callable[[AskUsage], bool]) -> None:
        """``ask`` sends a question; False when there is nobody to ask."""
        self._ask = ask
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[KeyUsage]] = {}

    def told(self, message: UsageTold) -> None:
        """Control has answered."""
        future = self._open.get(message.number)
        if future is not None and not future.done():
            future.set_result(message.usage)

    async def serve(self, visit: Visit, wire: ClientWire, *, headers: bytes) -> None:
        """Answer a client about its key.  Raises ControlAway; UnknownEndpoint where nobody has one."""
        if visit.key is None:
            raise UnknownEndpoint("there are no keys here, so nobody's usage is counted")
        body = await self._body(visit.key)
        wire.send(envelope.response(200, body, headers=headers, with_body=visit.method != "HEAD"))

    async def _body(self, key: Key) -> bytes:
        number = next(self._numbers)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            if not self._ask(AskUsage(number=number, key_id=key.id)):
                raise _away()
            async with asyncio.timeout(PATIENCE_S):
                usage = await future
        except TimeoutError:
            raise _away() from None
        finally:
            del self._open[number]
        return msgspec.json.encode(_answer(key, usage))


def _away() -> ControlAway:
    return ControlAway("usage cannot be told at present; limits are kept all the same", retry_after_s=1.0)


def _answer(key: Key, usage: KeyUsage) -> UsageAnswer:
    limits = key.limits

    def left(limit: int | None, resource: Resource) -> int | None:
        return None if limit is None else max(0, limit - usage.held.get(resource.value, 0))

    return UsageAnswer(
        key=key.id,
        name=key.name,
        today={
            "since": int(usage.since_wall),
            "until": int(usage.since_wall + DAY_S),
            **_counts(usage.today),
            "token_limit": limits.tokens_per_day,
            "tokens_left": left(limits.tokens_per_day, Resource.DAY),
        },
        minute={
            "requests": usage.minute_requests,
            "request_limit": limits.requests_per_minute,
            "requests_left": left(limits.requests_per_minute, Resource.REQUESTS),
            "tokens": usage.minute_tokens,
            "token_limit": limits.tokens_per_minute,
            "tokens_left": left(limits.tokens_per_minute, Resource.TOKENS),
            "empty_in_s": math.ceil(usage.minute_empty_s),
        },
        concurrency={"limit": limits.concurrency, "left": left(limits.concurrency, Resource.CONCURRENCY)},
        models={model: _counts(count) for model, count in usage.models.items()},
        approximate=not usage.complete,
    )


def _counts(count: UsageCount) -> dict[str, int]:
    return {
        "requests": count.requests,
        "prompt_tokens": count.prompt_tokens,
        "completion_tokens": count.completion_tokens,
        "reasoning_tokens": count.reasoning_tokens,
        "tokens": count.tokens,
    }
