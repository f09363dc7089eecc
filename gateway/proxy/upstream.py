"""Connections to backends: opened, kept a moment for the next request, closed at once when a client leaves.

Station forward.  One request at a time on a connection (HTTP/1.1 without pipelining).  Idle connections are dropped
after ``upstream_idle_s``, which lies below vLLM's own 5 s, so that a request never races with the backend's close.
Must not know what an answer means.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.core.routing.snapshot import BackendView
from gateway.errors import ConnectFailed, Overloaded

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Target(Struct, frozen=True):
    """Where a backend listens: a Unix socket ``path``, or ``host`` and ``port``, with TLS when ``tls``."""

    host: str
    port: int
    path: str
    tls: bool
    tls_ca: str

    @classmethod
    def of(cls, url: str, *, tls_ca: str) -> Target:
        """Parse ``http://host:port``, ``https://host:port`` or ``unix:/path`` (checked by the settings)."""
        if url.startswith("unix:"):
            return cls("localhost", 0, url.removeprefix("unix:").removeprefix("//"), tls=False, tls_ca="")
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        return cls(parts.hostname or "", port, "", tls=parts.scheme == "https", tls_ca=tls_ca)

    @property
    def host_header(self) -> bytes:
        """The value of the Host header."""
        if self.path:
            return b"localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}".encode("idna" if not host.isascii() else "ascii")


class Receiver(Protocol):
    """Who gets what comes from a backend during one exchange."""

    def received(self, data: bytes) -> None:
        """Bytes off the wire."""
        ...

    def lost(self, error: Exception | None) -> None:
        """The connection ended: cleanly (None) or with ``error``."""
        ...

    def flushed(self) -> None:
        """A request that did not fit into the socket at once has been written."""
        ...


class Connection(asyncio.Protocol):
    """One connection to a backend.  Owner: :class:`Upstreams` while idle, one exchange while busy."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.idle_since = 0.0
        self.paused = False
        self._receiver: Receiver | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def usable(self) -> bool:
        """Whether a request can be written."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unsent(self) -> bool:
        """Whether a part of a request has not gone out yet."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def begin(self, receiver: Receiver) -> None:
        """Hand everything that comes to ``receiver``."""
        self._receiver = receiver

    def write(self, data: bytes) -> bool:
        """Write a request; True when the socket took all of it (else ``flushed`` is called when it has)."""
        if self._transport is None:
            return False
        self._transport.write(data)
        return self._transport.get_write_buffer_size() <= _FLUSH_BYTES

    def pause(self) -> None:
        """Read nothing more until :meth:`resume`."""
        self.paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self.paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    def hand_to(self, feed: Callable[[bytes], None]) -> None:
        """Give what comes straight to ``feed`` until :meth:`end`, without a frame of ours per read.

        uvloop's transports look ``data_received`` up once, when they are told their protocol; asyncio's each time.
        """
        self.data_received = feed  # type: ignore[method-assign,assignment]  # on this instance
        if self._transport is not None:
            self._transport.set_protocol(self)

    def end(self) -> None:
        """Nobody listens any more; the connection itself stays."""
        self._receiver = None
        if self.__dict__.pop("data_received", None) is not None and self._transport is not None:
            self._transport.set_protocol(self)

    def abort(self) -> None:
        """Close at once, without waiting for anything to be written."""
        self.end()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        self._transport.set_write_buffer_limits(high=_FLUSH_BYTES, low=0)

    def data_received(self, data: bytes) -> None:
        """Bytes off the wire; on an idle connection they are nobody's and end it."""
        if self._receiver is not None:
            self._receiver.received(data)
        else:
            self.abort()

    def resume_writing(self) -> None:
        """The socket has taken everything."""
        if self._receiver is not None:
            self._receiver.flushed()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        receiver, self._receiver, self._transport = self._receiver, None, None
        if receiver is not None:
            receiver.lost(exc)


_FLUSH_BYTES = 64 * 1024

OUR_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Errors of a connect that say nothing of the backend: descriptors, memory or local ports of this host ran out."""


class Upstreams:
    """All connections to backends of one worker.  Owner of the idle ones."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._idle: dict[Target, list[Connection]] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._loads: dict[str, asyncio.Future[ssl.SSLContext]] = {}
        self._targets: dict[tuple[str, str], Target] = {}

    def target(self, backend: BackendView) -> Target:
        """Where ``backend`` is, worked out once."""
        found = self._targets.get((backend.url, backend.tls_ca))
        if found is None:
            found = self._targets[backend.url, backend.tls_ca] = Target.of(backend.url, tls_ca=backend.tls_ca)
        return found

    async def connect(self, target: Target, *, timeout_s: float, idle_s: float) -> Connection:
        """A connection that a request can be written to at once, kept or new.  Raises ConnectFailed."""
        kept = self._idle.get(target)
        newest_first = self._clock() - idle_s
        while kept:
            connection = kept.pop()
            if connection.usable and connection.idle_since >= newest_first:
                return connection
            connection.abort()
        return await self._open(target, timeout_s=timeout_s)

    async def _open(self, target: Target, *, timeout_s: float) -> Connection:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open_to(target)
        except TimeoutError as error:
            raise ConnectFailed(f"no connection to the backend within {timeout_s:g} s") from error
        except OSError as error:
            if error.errno in OUR_SHORTAGE:
                raise Overloaded(
                    f"the gateway has no means left for another connection ({_reason(error)})", retry_after_s=1.0
                ) from error
            raise ConnectFailed(f"no connection to the backend: {_reason(error)}") from error

    async def _open_to(self, target: Target) -> Connection:
        loop = asyncio.get_running_loop()
        if target.path:
            _, connection = await loop.create_unix_connection(lambda: Connection(target), target.path)
        else:
            context = await self._context(target.tls_ca) if target.tls else None
            _, connection = await loop.create_connection(
                lambda: Connection(target), target.host, target.port, ssl=context
            )
        return connection

    def keep(self, connection: Connection) -> None:
        """Keep ``connection`` for the next request to the same target."""
        connection.end()
        if connection.unsent:
            connection.abort()  # the backend answered before it had the whole request; the rest would come first
        elif connection.usable:
            connection.idle_since = self._clock()
            self._idle.setdefault(connection.target, []).append(connection)

    def sweep(self, *, idle_s: float) -> None:
        """Close what has been idle for ``idle_s``; called by the worker about once a second."""
        oldest = self._clock() - idle_s
        for target, kept in list(self._idle.items()):
            fresh: list[Connection] = []
            for connection in kept:
                if connection.usable and connection.idle_since >= oldest:
                    fresh.append(connection)
                else:
                    connection.abort()
            if fresh:
                self._idle[target] = fresh
            else:
                del self._idle[target]

    def close(self) -> None:
        """Close every idle connection."""
        self.sweep(idle_s=float("-inf"))

    def forget_certificates(self) -> None:
        """Read certificate files anew at the next connection: they, or the configuration, may have changed."""
        self._contexts.clear()

    def _loading(self, tls_ca: str) -> asyncio.Future[ssl.SSLContext]:
        """The one load of ``tls_ca`` that is under way; all that ask meanwhile share it."""
        loading = self._loads.get(tls_ca)
        if loading is None:
            load = partial(ssl.create_default_context, cafile=tls_ca or None)
            loading = self._loads[tls_ca] = asyncio.get_running_loop().run_in_executor(None, load)
            loading.add_done_callback(lambda _: self._loads.pop(tls_ca, None))
        return asyncio.shield(loading)

    async def _context(self, tls_ca: str) -> ssl.SSLContext:
        context = self._contexts.get(tls_ca)
        if context is None:
            try:
                # In a thread: reading the system's authorities takes tens of milliseconds.
                context = await self._loading(tls_ca)
            except OSError as error:
                raise ConnectFailed("the backend's tls_ca file cannot be read") from error
            self._contexts[tls_ca] = context
        return context


def _reason(error: OSError) -> str:
    """The system's words for ``error``, without addresses: those are the operator's business, not the client's."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'handshake'})"
    return error.strerror.lower() if error.strerror and ":" not in error.strerror else type(error).__name__
