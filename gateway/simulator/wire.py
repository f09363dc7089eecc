"""HTTP/1.1 as uvicorn speaks it, on a raw asyncio protocol: requests in, response bytes out.

Shell.  One request at a time per connection, the next one waits in the inbox; keep-alive ends after some seconds of
silence.  It knows nothing of vLLM: an :class:`Application` answers, at once or later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, cast

from gateway.simulator.wire_read import RequestReader

_AHEAD_BYTES: Final = 64 * 1024  # of further requests that are taken in while one is answered, and one read more
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_STREAM_TYPE: Final = b"content-type: text/event-stream; charset=utf-8\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are in lower case, ``path`` is without its query."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes


class Application(Protocol):
    """What answers requests and hears of a client's end."""

    keep_alive_s: float

    def date(self) -> bytes:
        """Return the Date header's value."""

    def connected(self, connection: Connection) -> None:
        """Hear of a new connection."""

    def answer(self, connection: Connection, request: Request) -> None:
        """Answer through ``connection.respond`` or ``begin_stream`` and so on, now or later."""

    def writable(self, connection: Connection) -> None:
        """Hear that the client reads again."""

    def gone(self, connection: Connection) -> None:
        """Hear that the connection is lost."""


class Connection(asyncio.Protocol):
    """One connection; owner of its inbox and its turn. ``answering`` is the application's own mark of who answers."""

    __slots__ = (
        "_app", "_has_told_to_go_on", "_is_busy", "_is_deaf", "_reader", "_timer", "_transport", "_wants_close",
        "answering", "is_paused", "request",
    )  # fmt: skip

    def __init__(self, app: Application) -> None:
        self._app = app
        self._reader = RequestReader()
        self._has_told_to_go_on = False
        self._is_deaf = False  # reading is paused
        self._is_busy = False
        self._wants_close = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.request: Request | None = None
        self.answering: object | None = None
        self.is_paused = False

    @property
    def peer(self) -> str:
        """The client's address, for the access log."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "-"

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return not self._is_busy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)
        self._app.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone."""
        del exc
        self._transport = None
        self._stop_timer()
        self._app.gone(self)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self.is_paused = False
        self._app.writable(self)

    def close(self) -> None:
        """Close once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def write(self, data: bytes) -> None:
        """Send, unless the client is gone."""
        if self._transport is not None:
            self._transport.write(data)

    def respond(self, status: int, body: bytes, *, content_type: bytes, before: bytes = b"", extra: bytes) -> None:
        """Send a whole response and end the turn; header lines ``before`` the length, ``extra`` ones after the type."""
        is_head = self.request is not None and self.request.method == "HEAD"
        kind = b"content-type: %b\r\n" % content_type if content_type else b""
        length = b"content-length: %d\r\n" % len(body)
        end = b"\r\n" if is_head else b"\r\n" + body
        self.write(b"".join((self._opening(status), before, length, kind, extra, self._closing(), end)))
        self.finished()

    def begin_stream(self, *, extra: bytes) -> None:
        """Send the head of an event stream, with ``extra`` header lines."""
        closing = self._closing()
        self.write(b"".join((self._opening(200), _STREAM_TYPE, extra, closing, b"transfer-encoding: chunked\r\n\r\n")))

    def _opening(self, status: int) -> bytes:
        reason = _REASONS[status].encode()
        return b"HTTP/1.1 %d %b\r\ndate: %b\r\nserver: uvicorn\r\n" % (status, reason, self._app.date())

    def _closing(self) -> bytes:
        if self.request is not None and self.request.headers.get(b"connection", b"").lower() == b"close":
            self._wants_close = True
        return b"connection: close\r\n" if self._wants_close else b""

    def finished(self) -> None:
        """End the turn: close where that was asked for, else take the next request or wait for one."""
        self._is_busy = False
        self.answering = None
        if self._wants_close:
            self.close()
            return
        self._timer = asyncio.get_running_loop().call_later(self._app.keep_alive_s, self.close)
        if len(self._reader) or self._is_deaf:
            asyncio.get_running_loop().call_soon(self._go_on)  # not from here: thousands may wait, one inside another

    def _go_on(self) -> None:
        """Take the next request that is there already; read on when few enough wait."""
        if not self._is_busy and self._transport is not None:
            self._take()
        is_ready = not self._is_busy or len(self._reader) <= _AHEAD_BYTES
        if self._is_deaf and is_ready and self._transport is not None:
            self._is_deaf = False
            self._transport.resume_reading()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._reader.feed(data)
        if not self._is_busy:
            self._take()
        if self._is_busy and len(self._reader) > _AHEAD_BYTES and self._transport is not None:
            self._is_deaf = True
            self._transport.pause_reading()  # a client that sends ahead without end waits for its answers

    def _take(self) -> None:
        try:
            taken = self._reader.take()
        except ValueError:
            self._malformed()
            return
        if taken is None:
            if self._reader.awaits_go_on and not self._has_told_to_go_on:
                self._has_told_to_go_on = True
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        head, body = taken
        self._has_told_to_go_on = False
        self._stop_timer()
        self._is_busy = True
        path = head.target.partition("?")[0]
        self.request = Request(method=head.method, path=path, headers=head.headers, body=body)
        self._app.answer(self, self.request)

    def _malformed(self) -> None:
        self._reader.clear()
        self.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            b"content-length: 30\r\n\r\nInvalid HTTP request received."
        )
        self.close()
