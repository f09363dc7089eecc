"""A question of the gateway's own to a backend: one GET without effect, beside what clients ask.

Used for stored responses: who has one, and what has become of it.  Never raises for what the backend does: status 0
says that it did not answer.  Raises Overloaded where this host is short of connections.  Must not judge the answer.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from gateway.core.routing.credentials import bearer_line
from gateway.core.routing.endpoints import ENDPOINTS
from gateway.core.routing.snapshot import BackendView, TimerPolicy
from gateway.core.stream.http1 import BadFraming, Body, OpenBody, body_of, parse_head
from gateway.errors import ConnectFailed
from gateway.proxy.upstream import Upstreams

_RETRIEVE: Final = ENDPOINTS["/v1/responses/{id}"]
_NO_ANSWER: Final = (0, b"")

FOUND: Final = range(200, 300)
UNKNOWN: Final = 404


async def ask_for_response(
    upstreams: Upstreams, backend: BackendView, thing: str, *, timers: TimerPolicy, most_bytes: int = 0
) -> tuple[int, bytes]:
    """The status and body with which ``backend`` answers a GET of the response ``thing``; (0, b"") where it does not.

    Of a body over ``most_bytes`` nothing is read (0: of none), which is then b"".
    """
    target = upstreams.target(backend)
    try:
        connection = await upstreams.connect(target, timeout_s=timers.connect_s, idle_s=timers.upstream_idle_s)
    except ConnectFailed:
        return _NO_ANSWER
    question = _Question(most_bytes)
    key = os.environ.get(backend.api_key_env, "") if backend.api_key_env else ""
    try:
        connection.begin(question)
        connection.write(
            b"GET %b HTTP/1.1\r\nHost: %b\r\n%b\r\n"
            % (_RETRIEVE.target(thing, b""), target.host_header, bearer_line(key))
        )
        async with asyncio.timeout(timers.owner_s):
            return await question.answer
    except TimeoutError:
        return _NO_ANSWER
    finally:
        connection.abort()  # what was not read of the answer must not stand before the next one


class _Question:
    """Receives one answer."""

    def __init__(self, most_bytes: int) -> None:
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._most_bytes = most_bytes
        self._head = b""
        self._status = 0
        self._body: Body | None = None
        self._pieces: list[bytes] = []
        self._left_bytes = most_bytes

    def received(self, data: bytes) -> None:
        """Bytes off the wire."""
        try:
            self._take(data)
        except BadFraming:
            self._settle(_NO_ANSWER)

    def _take(self, data: bytes) -> None:
        if self._body is None:
            self._head += data
            parsed = parse_head(self._head)
            if parsed is None:
                return
            head, start = parsed
            self._status, self._body, data = head.status, body_of(head), self._head[start:]
            if not self._most_bytes:
                self._settle((self._status, b""))
                return
        for piece in self._body.feed(data):
            self._left_bytes -= len(piece)
            self._pieces.append(piece)
        if self._left_bytes < 0 or self._body.held_bytes > self._most_bytes:
            self._pieces.clear()
            self._settle((self._status, b""))
        elif self._body.ended:
            self._settle((self._status, b"".join(self._pieces)))

    def lost(self, error: Exception | None) -> None:
        """The connection ended: before the answer was whole, or as its end."""
        whole = error is None and isinstance(self._body, OpenBody)
        self._settle((self._status, b"".join(self._pieces)) if whole else _NO_ANSWER)

    def flushed(self) -> None:
        """The question went out."""

    def _settle(self, answer: tuple[int, bytes]) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)
