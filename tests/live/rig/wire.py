"""One HTTP request on a connection of its own, read event by event and left when asked.

A plain client (the standard library's), so that what it sees is what was sent: raw body bytes, how the
body ended, and the moment of each event. Use the real clients for how clients feel; this one for bytes,
for times, and for leaving in the middle.
"""

import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from tests.live.rig.processes import until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
DONE = "[DONE]"
# Seconds of work for this engine, and within its context.
ENDLESS_TOKENS = 1900


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event: its data and the moment (time.perf_counter, s) its last byte was read."""

    data: str
    at_s: float

    def json(self) -> Any:
        return json.loads(self.data)


class Cut(AssertionError):
    """The body ended without its end: the connection closed in the middle."""


class Call:
    """A request that has been sent; the response is read as far as the test reads it."""

    def __init__(
        self,
        port: int,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 90.0,
    ) -> None:
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if payload is not None else {}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        self._connection.connect()
        self._socket = self._connection.sock
        self._connection.request(
            method or ("GET" if payload is None else "POST"), path, payload, sent | dict(headers or {})
        )
        self.sent_at_s = time.perf_counter()
        self._response: http.client.HTTPResponse | None = None
        self.body = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    @property
    def response(self) -> http.client.HTTPResponse:
        """The response, once its head is here."""
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    @property
    def status(self) -> int:
        return self.response.status

    def header(self, name: str) -> str | None:
        return self.response.getheader(name)

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives; raises Cut when the connection ends before the body does."""
        response = self.response
        while True:
            try:
                piece = response.read1(65536)
            except http.client.IncompleteRead as broken:
                raise Cut(f"the connection closed after {len(self.body)} bytes of body") from broken
            if not piece:
                if response.length:  # a promised length that did not come
                    raise Cut(f"{response.length} bytes of body never came")
                return
            self.body += piece
            yield piece

    def read(self) -> bytes:
        """The whole body."""
        for _ in self.pieces():
            pass
        return self.body

    def json(self) -> Any:
        """The whole body as JSON."""
        return json.loads(self.read())

    def events(self) -> Iterator[Event]:
        """The server-sent events as they arrive, end marker included; comments are left out."""
        buffered = b""
        for piece in self.pieces():
            at_s = time.perf_counter()
            *blocks, buffered = (buffered + piece).split(b"\n\n")
            for block in blocks:
                data = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
                if data:
                    yield Event(b"\n".join(data).decode(), at_s)
        if buffered:
            raise Cut(f"{len(buffered)} bytes after the last event")

    def leave(self, *, reset: bool = False) -> float:
        """Close the connection, unread data or not; the moment it was closed (time.perf_counter, s).

        `reset` makes the kernel send RST instead of FIN, as a client that was killed does.
        """
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self._response is not None:
            self._response.close()
        self._connection.close()
        self._socket.close()
        return time.perf_counter()


def get(
    port: int, path: str, *, timeout_s: float = 10.0, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """GET a path: status and body."""
    with Call(port, path, timeout_s=timeout_s, headers=headers) as call:
        return call.status, call.read()


def answers(port: int, path: str, *, status: int = 200) -> bool:
    """Whether a GET answers with this status now; a refused or broken connection is a no."""
    try:
        return get(port, path, timeout_s=5)[0] == status
    except (OSError, http.client.HTTPException):
        return False


def until_answers(port: int, path: str, *, within_s: float, status: int = 200) -> float:
    """Wait until a GET answers with this status; the seconds it took."""
    return until(lambda: answers(port, path, status=status), f"{status} for {path} on port {port}", within_s=within_s)


def chat(prompt: str = "hello there", /, **options: Any) -> dict[str, Any]:
    """A chat request to the tiny model, deterministic unless a temperature is given.

    The model answers by words in the prompt: `count` thinks briefly and counts to 300 (367 tokens);
    `ponder` thinks for long; `emoji` writes characters of several tokens; anything else, a few sentences.
    """
    return {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "temperature": 0, **options}


def endless(prompt: str = "count please", /, **options: Any) -> dict[str, Any]:
    """A chat request that goes on for ENDLESS_TOKENS unless somebody leaves."""
    return chat(prompt, max_tokens=ENDLESS_TOKENS, ignore_eos=True, **options)


def silent(**options: Any) -> dict[str, Any]:
    """An endless request whose reasoning is hidden and never ends: after the role chunk the engine sends nothing.

    The token that would end the thinking is `</think>`, number 4 of the tiny model's vocabulary.
    """
    return endless("ponder please", include_reasoning=False, logit_bias={"4": -100}, stream=True, **options)
