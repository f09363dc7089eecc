"""The floor for a relay in Python: bytes in, the same bytes out, two system calls a piece, nothing understood.

Each client connection gets an upstream connection of its own. No HTTP, no flow control, no limits.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import uvloop


class Upstream(asyncio.Protocol):
    """The engine's side of a pair."""

    def __init__(self, client: Downstream) -> None:
        self._client = client
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)
        self._client.joined(self.transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._client.transport.write(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The other side is gone."""
        self._client.transport.close()


class Downstream(asyncio.Protocol):
    """The client's side of a pair; what comes before the engine is connected waits."""

    transport: asyncio.Transport

    def __init__(self, port: int) -> None:
        self._port = port
        self._waiting: list[bytes] = []
        self._upstream: asyncio.Transport | None = None
        self._gone = False
        self._connecting: asyncio.Task[tuple[asyncio.Transport, Upstream]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(loop.create_connection(lambda: Upstream(self), "127.0.0.1", self._port))

    def joined(self, upstream: asyncio.Transport) -> None:
        """The engine's side is connected."""
        self._upstream = upstream
        for data in self._waiting:
            upstream.write(data)
        self._waiting.clear()
        if self._gone:
            upstream.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._upstream is None:
            self._waiting.append(data)
        else:
            self._upstream.write(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The other side is gone."""
        self._gone = True
        if self._upstream is not None:
            self._upstream.abort()


async def _serve(port: int, upstream_port: int) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Downstream(upstream_port), "127.0.0.1", port, backlog=2048
    )
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream-port", type=int, required=True)
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments.port, arguments.upstream_port))


if __name__ == "__main__":
    main()
