"""The live feed as Server-Sent Events: states, decisions, settled requests as they happen.

A reader that comes back with `Last-Event-ID` gets what is still kept of what it missed, and an event `gap` where
something is not.  One that does not read is dropped, so that nothing piles up for it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import hdrs, web

from gateway.admin.access import Caller
from gateway.admin.answers import stream_head
from gateway.admin.limits import AdminLimits
from gateway.admin.route import Route, read_query
from gateway.admin.schemas import EventsQuery
from gateway.admin.tokens import Scope
from gateway.errors import BadRequest, Overloaded
from gateway.ports import Feed, FeedItem

MEDIA_TYPE: Final = "text/event-stream"
STARTED: Final = web.RequestKey("started", web.StreamResponse)
"""On a request whose response is under way: no other can be sent in its place."""

_RETRY: Final = b"retry: 2000\n\n"
_KEEP_ALIVE: Final = b": keep-alive\n\n"


class EventStreams:
    """Owner of the open streams: counts them, and ends them on the way out."""

    def __init__(self, feed: Feed, limits: AdminLimits) -> None:
        self._feed = feed
        self._limits = limits
        self._open: set[asyncio.Task[object]] = set()

    @property
    def open(self) -> int:
        """How many are being followed."""
        return len(self._open)

    def routes(self) -> tuple[Route, ...]:
        """The one route."""
        return (
            Route(
                name="events",
                method=hdrs.METH_GET,
                path="/admin/v1/events",
                scope=Scope.READ,
                handle=self.follow,
                summary="The live feed (SSE). `Last-Event-ID` resumes; without it the stream begins now.",
                answer=MEDIA_TYPE,
                query=EventsQuery,
            ),
        )

    def end_all(self) -> None:
        """End every stream; they close without waiting for their readers."""
        for task in self._open:
            task.cancel()

    async def follow(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Send events until the reader leaves, stops reading, or the gateway ends."""
        last_id = self._first_position(request)
        if len(self._open) >= self._limits.streams:
            raise Overloaded("too many event streams are open", retry_after_s=self._limits.keep_alive_s)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a handler runs in a task")
        self._open.add(task)
        try:
            return await self._send(request, last_id)
        finally:
            self._open.discard(task)

    def _first_position(self, request: web.Request) -> int:
        query = read_query(request, EventsQuery)
        header = request.headers.get("Last-Event-ID")
        if header is not None:
            if not (header.isascii() and header.isdigit() and len(header) < 19):
                raise BadRequest("Last-Event-ID is the number of an event", param="Last-Event-ID")
            return int(header)
        if query.last_event_id is not None:
            return query.last_event_id
        kept = self._feed.since(0)
        return kept[-1].id if kept else 0

    async def _send(self, request: web.Request, last_id: int) -> web.StreamResponse:
        response = stream_head(MEDIA_TYPE)
        request[STARTED] = response
        try:
            await response.prepare(request)
            await self._write(response, _RETRY)
            await self._send_events(request, response, last_id)
        except (ConnectionError, TimeoutError):
            # The reader has left or takes nothing: what waits for it is thrown away with the connection.
            _abort(request)
        return response

    async def _send_events(self, request: web.Request, response: web.StreamResponse, last_id: int) -> None:
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()
        while not _is_gone(request):
            items = await self._feed.wait(last_id, timeout_s=self._limits.poll_s)
            if items and last_id and items[0].id != last_id + 1:
                await self._write(response, _gap(last_id, items[0].id))
            for item in items:
                await self._write(response, _event(item))
                last_id = item.id
            now = loop.time()
            if items:
                quiet_since = now
            elif now - quiet_since >= self._limits.keep_alive_s:
                await self._write(response, _KEEP_ALIVE)
                quiet_since = now

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self._limits.write_s):
            await response.write(data)


def _event(item: FeedItem) -> bytes:
    data = item.data.replace(b"\r", b"").replace(b"\n", b"\ndata: ")
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (item.id, item.name.encode(), data)


def _gap(after: int, next_id: int) -> bytes:
    # Without an id of its own: a reader that comes back asks for what came after the last real event.
    return b'event: gap\ndata: {"after":%d,"next":%d}\n\n' % (after, next_id)


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
