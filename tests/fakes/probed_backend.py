"""A backend as probes see it: `/health`, `/v1/models`, `/version` and `/metrics` over a real socket.

Steered by plain attributes while it runs.  It generates nothing; what it answers on each path can be replaced by any
bytes, a hang or a close.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

HANG = b"(hang)"
CLOSE = b""


def answer(status: int = 200, body: bytes = b"", *, headers: str = "") -> bytes:
    """A whole HTTP/1.1 answer."""
    head = f"HTTP/1.1 {status} Whatever\r\nserver: uvicorn\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


@dataclass
class ProbedBackend:
    """What it says.  ``raw`` replaces the answer of a path; ``asked`` counts requests, ``keys`` what came as key."""

    models: list[str] = field(default_factory=lambda: ["tiny"])
    version: str = "0.32.0"
    tokens: float = 0.0
    running: float = 0.0
    health: int = 200
    raw: dict[str, bytes] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)
    connections: int = 0
    url: str = ""
    _stamp: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
        """Returns when ``condition`` holds; looked at whenever a request came or a connection began or ended."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._news.wait()

    def hang_up(self) -> None:
        """Reset every connection, as the death of the process would."""
        for writer in self._writers:
            writer.transport.abort()

    def _something_happened(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        self._something_happened()
        try:
            while head := await self._head(reader):
                path = head.split(" ", 2)[1]
                self.asked[path] += 1
                self.keys |= {
                    line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("authorization:")
                }
                self._something_happened()
                reply = self.raw.get(path, self._usual(path))
                if reply == HANG:
                    await asyncio.sleep(3600)
                if reply == CLOSE:
                    return
                writer.write(reply)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            self.connections -= 1
            self._writers.discard(writer)
            self._something_happened()
            writer.close()

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> str:
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return ""

    def _usual(self, path: str) -> bytes:
        self._stamp += 1
        match path:
            case "/health":
                return answer(self.health)
            case "/version":
                return answer(body=json.dumps({"version": self.version}).encode())
            case "/v1/models":
                cards = [{"id": name, "object": "model", "created": self._stamp} for name in self.models]
                return answer(body=json.dumps({"object": "list", "data": cards}).encode())
            case "/metrics":
                return answer(body=self.page())
            case _:
                return answer(404, b'{"detail":"Not Found"}')

    def page(self) -> bytes:
        """The metrics page, with two engines behind one server."""
        lines = [
            "# TYPE vllm:generation_tokens counter",
            f'vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {self.tokens}',
            'vllm:generation_tokens_total{engine="1",model_name="tiny"} 0.0',
            f'vllm:num_requests_running{{engine="0",model_name="tiny"}} {self.running}',
            'vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0',
        ]
        return ("\n".join(lines) + "\n").encode()


@asynccontextmanager
async def listening(
    backend: ProbedBackend, *, port: int = 0, path: str = "", tls: ssl.SSLContext | None = None
) -> AsyncIterator[ProbedBackend]:
    """Serve ``backend`` on loopback (``port`` 0: a free one) or at the Unix socket ``path``, until the block ends."""
    if path:
        server = await asyncio.start_unix_server(backend.serve, path)
        backend.url = f"unix:{path}"
    else:
        server = await asyncio.start_server(backend.serve, "127.0.0.1", port, ssl=tls, reuse_address=True)
        scheme = "https" if tls is not None else "http"
        backend.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    serving = asyncio.get_running_loop().create_task(_serve(server))
    try:
        yield backend
    finally:
        serving.cancel()
        server.close()


async def _serve(server: asyncio.Server) -> None:
    async with server:
        await server.serve_forever()
