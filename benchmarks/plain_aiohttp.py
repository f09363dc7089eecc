"""The naive relay: a plain aiohttp handler and client with nothing on, under uvloop.

The in-tree baseline that the gateway must beat with everything on. It relays only: no tap, no limits, no health.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

_HOP_BY_HOP = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length"})


class PlainRelay:
    """One upstream session, one handler."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: ClientSession | None = None

    async def session(self, _app: web.Application) -> AsyncIterator[None]:
        """Hold the upstream session while the server runs."""
        timeout = ClientTimeout(total=None)
        async with ClientSession(connector=TCPConnector(limit=0), timeout=timeout, auto_decompress=False) as session:
            self._session = session
            yield

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Relay one request: its whole body up, the answer down as it comes."""
        if self._session is None:
            raise web.HTTPServiceUnavailable
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        url = self._upstream + request.rel_url.raw_path_qs
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            if answer.content_length is not None:
                response.content_length = answer.content_length
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True, help="http://host:port of the engine")
    arguments = parser.parse_args()
    relay = PlainRelay(arguments.upstream)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.cleanup_ctx.append(relay.session)
    app.router.add_route("*", "/{path:.*}", relay.handle)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=arguments.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
