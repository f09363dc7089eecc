"""Comments while a stream is silent, so that nothing on the way to the client takes it for dead.

Station relay, shell.  A comment is no event: clients skip it and the tap never sees it.  One lazy timer a stream,
which looks whether anything was written since it last looked; nothing is armed or counted per chunk.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from gateway.core.routing.snapshot import CommentPolicy
from gateway.core.stream.summary import Dialect

_LOOKS: Final = 4
"""Looks in the time of one comment: silence is noticed at most a quarter of it late."""

_COMMENT: Final = b": keep-alive\n\n"
_PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'


class Silent(Protocol):
    """The relay of a stream."""

    @property
    def response_bytes(self) -> int:
        """Bytes written to the client so far."""
        ...

    def interject(self, text: bytes) -> None:
        """Write ``text`` between two events, if that is possible now."""
        ...


class Blockable(Protocol):
    """The exchange, which knows whether the client takes bytes."""

    @property
    def blocked(self) -> bool:
        """Whether it does not: then there is nothing to keep alive."""
        ...


def comment_of(dialect: Dialect) -> bytes:
    """What stands for silence: a comment; for Messages, whose clients know it, a ``ping`` event."""
    return _PING if dialect is Dialect.MESSAGES else _COMMENT


class CommentTimer:
    """Owner of one stream's timer, from the answer's head to its end."""

    __slots__ = ("_client", "_handle", "_loop", "_policy", "_relay", "_seen_bytes", "_silent_s", "_text", "_tick_s")

    def __init__(
        self,
        relay: Silent,
        client: Blockable,
        *,
        policy: CommentPolicy,
        dialect: Dialect,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """``policy`` must not have both of its times off."""
        self._relay = relay
        self._client = client
        self._policy = policy
        self._loop = loop
        self._text = comment_of(dialect)
        self._tick_s = min(filter(None, (policy.first_s, policy.every_s))) / _LOOKS
        self._seen_bytes = relay.response_bytes
        self._silent_s = 0.0
        self._handle = loop.call_later(self._tick_s, self._look)

    def stop(self) -> None:
        """The stream is over."""
        self._handle.cancel()

    def _look(self) -> None:
        self._silent_s += self._tick_s
        written = self._relay.response_bytes
        if written != self._seen_bytes or self._client.blocked:
            self._silent_s = 0.0
        due_s = self._policy.every_s if written else self._policy.first_s
        if due_s and self._silent_s >= due_s:
            self._relay.interject(self._text)
            self._silent_s = 0.0
        self._seen_bytes = self._relay.response_bytes
        self._handle = self._loop.call_later(self._tick_s, self._look)
