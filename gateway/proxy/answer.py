"""Station relay, for bodies that are no stream: JSON answers and the engine's own errors.

A body up to ``answer_hold_bytes`` is held until it is whole, so that a backend that dies half-way is a 502 and not a
cut answer, and an error can still be tried elsewhere; a longer one flows as it comes.  A copy up to
``answer_tap_bytes`` is kept for the counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.core.stream.http1 import TERMINATOR, BadFraming, Body, OpenBody, chunk
from gateway.core.stream.summary import Ending
from gateway.errors import GatewayError
from gateway.proxy.relay_owner import RelayOwner
from gateway.proxy.wire import ClientWire


class HeadMaker(Protocol):
    """Makes the response head once the body's length is known (None: it is not, and goes in chunks)."""

    def __call__(self, length: int | None) -> bytes:
        """The head, blank line included."""
        ...


class AnswerRelay:
    """Relays one body.  Owner of what is held and of the copy."""

    __slots__ = (
        "_body",
        "_chunk_bytes",
        "_client_chunked",
        "_clock",
        "_copy",
        "_copy_bytes",
        "_copy_whole",
        "_edit",
        "_exchange",
        "_flowing",
        "_framed",
        "_hold_bytes",
        "_length",
        "_make_head",
        "_must_edit",
        "_taken_bytes",
        "_wire",
        "hold_max_s",
        "last_byte_at",
        "response_bytes",
        "told",
        "zero_token_abort",
    )

    def __init__(
        self,
        *,
        exchange: RelayOwner,
        wire: ClientWire,
        make_head: HeadMaker,
        body: Body,
        length: int | None,
        edit: Callable[[bytes], bytes] | None,
        client_chunked: bool,
        must_edit: bool = False,
        hold_bytes: int,
        copy_bytes: int,
        chunk_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        """Take everything that is fixed when the head has come.

        ``edit`` changes a whole body before it goes out (None: untouched); ``length`` as the backend stated it;
        ``must_edit``: a body too long to be edited ends in an error, for what is in it must not get out;
        ``chunk_bytes`` bounds one HTTP chunk of the backend's, which is passed on only when it is whole.
        """
        self._exchange = exchange
        self._wire = wire
        self._make_head = make_head
        self._body = body
        self._length = length
        self._edit = edit
        self._client_chunked = client_chunked
        self._must_edit = must_edit
        self._hold_bytes = hold_bytes if edit is None else chunk_bytes if must_edit else copy_bytes
        self._copy_bytes = copy_bytes
        self._chunk_bytes = chunk_bytes
        self._clock = clock
        self._copy: list[bytes] = []
        self._copy_whole = True
        self._taken_bytes = 0
        self._flowing = False
        self._framed = False
        self.hold_max_s = 0.0
        self.last_byte_at: float | None = None
        self.response_bytes = 0
        self.told: GatewayError | None = None
        self.zero_token_abort = False

    @property
    def unsent(self) -> bool:
        """Whether the client has not had a byte yet."""
        return not self._flowing

    @property
    def delimited(self) -> bool:
        """Whether the backend said how the body ends, other than by closing the connection."""
        return not isinstance(self._body, OpenBody)

    @property
    def persistent(self) -> bool:
        """Whether the upstream body ended cleanly enough for its connection to be used again."""
        return self._body.ended and not self._body.excess

    def feed(self, data: bytes) -> None:
        """Bytes off the upstream's wire, without its head."""
        self.last_byte_at = self._clock()
        try:
            payloads = self._body.feed(data)
        except BadFraming:
            self._exchange.finish(Ending.BAD_FRAMING)
            return
        for payload in payloads:
            self._take(payload)
        if self._body.ended:
            self._exchange.finish(Ending.COMPLETE)
        elif self._body.held_bytes > self._chunk_bytes:
            self._exchange.finish(Ending.OVERSIZE)

    def _take(self, payload: bytes) -> None:
        self._taken_bytes += len(payload)
        if self._flowing:
            self._write(self._frame(payload))
        if self._copy_whole:
            self._copy.append(payload)
        if not self._flowing and self._taken_bytes > self._hold_bytes:
            if self._must_edit:
                self._exchange.finish(Ending.OVERSIZE)
                return
            self._flow()
        if self._flowing and self._taken_bytes > self._copy_bytes:
            self._copy_whole = False
            self._copy.clear()

    def _flow(self) -> None:
        """Too long to hold: send what there is, and from now on everything as it comes."""
        self._framed = self._length is None and self._client_chunked
        self._flowing = True
        self._write(self._make_head(self._length) + self._frame(b"".join(self._copy)))

    def _frame(self, payload: bytes) -> bytes:
        return chunk(payload) if self._framed else payload

    def _write(self, data: bytes) -> None:
        self.response_bytes += len(data)
        self._wire.send(data)

    def copy(self) -> bytes | None:
        """The whole body, or None when it was too long to keep."""
        return b"".join(self._copy) if self._copy_whole else None

    def release(self) -> None:
        """Send a body that was held whole."""
        body = b"".join(self._copy)
        if self._edit is not None:
            body = self._edit(body)
        self._flowing = True
        self._write(self._make_head(len(body)) + body)

    def lost(self, error: Exception | None) -> None:
        """The upstream connection ended."""
        if error is not None:
            self._exchange.finish(Ending.RESET)
        elif isinstance(self._body, OpenBody):
            self._body.finish()
            self._exchange.finish(Ending.COMPLETE)
        else:
            self._exchange.finish(Ending.EOF)

    def close(
        self,
        ending: Ending,
        error_for: Callable[[Ending], GatewayError],
    ) -> None:
        """End a flowing body; one that broke off is cut, so that the client cannot take it for whole."""
        if not self._flowing or ending in {Ending.CLIENT_GONE, Ending.CLIENT_STALLED}:
            return
        if ending is Ending.COMPLETE:
            if self._framed:
                self._write(TERMINATOR)
        else:
            self.told = error_for(ending)
            self._wire.cut()
