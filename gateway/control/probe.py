"""One look at a backend: a GET with a bound on its time and on what it may send; or an order to it, by POST.

The client behind every probe of control.  Speaks http, https (verified, with the backend's own authorities where they
are configured) and Unix sockets, sends the backend's own key, follows no redirect, keeps no cookie, asks no proxy.
Translates every failure once into a :class:`ProbeFailed`.  Must not judge: that is the fleet's affair.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from gateway.core.routing.credentials import bearer
from gateway.core.routing.evidence import ProbeResult
from gateway.settings import Backend

HEALTH_PATH: Final = "/health"
METRICS_PATH: Final = "/metrics"
MODELS_PATH: Final = "/v1/models"
VERSION_PATH: Final = "/version"

_CONNECTIONS: Final = 4
_IDLE_S: Final = 3.0
"""Below the 5 s after which vLLM's server closes an idle connection, so that no probe meets a closing one."""

_NOBODY_LISTENS: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT})
"""ENOENT: the Unix socket is not there."""


class ProbeFailed(Exception):
    """A probe came to nothing: ``result`` of a closed set for counting, ``detail`` a phrase for people."""

    def __init__(self, result: ProbeResult, detail: str = "") -> None:
        super().__init__(detail or result.value)
        self.result = result
        self.detail = detail or result.value


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and whole body of an answer."""

    status: int
    body: bytes


class ProbeClient:
    """Connections to one backend; used as an asynchronous context manager, which closes them."""

    def __init__(self, backend: Backend, *, environ: Mapping[str, str], timeout_s: float) -> None:
        self._backend = backend
        self._timeout_s = timeout_s
        self._base = "http://localhost" if backend.url.startswith("unix:") else backend.url
        key = environ.get(backend.api_key_env, "") if backend.api_key_env else ""
        self._headers = {"Accept-Encoding": "identity"}
        if authorization := bearer(key):
            self._headers["Authorization"] = authorization
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, *, max_bytes: int, timeout_s: float | None = None) -> Answer:
        """GET ``path``; connecting, waiting and reading together may take ``timeout_s`` (default: the client's).

        Raises ProbeFailed: no connection, no answer in time, no HTTP, or a body over ``max_bytes``.
        """
        return await self._bounded("GET", path, None, max_bytes=max_bytes, timeout_s=timeout_s)

    async def post(self, path: str, body: bytes, *, max_bytes: int, timeout_s: float | None = None) -> Answer:
        """POST ``body``, which is JSON, to ``path``; bounds and errors as of :meth:`get`."""
        return await self._bounded("POST", path, body, max_bytes=max_bytes, timeout_s=timeout_s)

    async def _bounded(
        self, method: str, path: str, body: bytes | None, *, max_bytes: int, timeout_s: float | None
    ) -> Answer:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._ask(method, path, body, max_bytes=max_bytes)
        except TimeoutError as error:
            raise ProbeFailed(ProbeResult.TIMEOUT, f"no answer in {limit_s:g} s") from error
        except aiohttp.ClientSSLError as error:
            raise ProbeFailed(ProbeResult.UNREACHABLE, "no connection: TLS failed, is tls_ca right?") from error
        except aiohttp.ClientConnectorError as error:
            raise _not_connected(error) from error
        except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError, aiohttp.InvalidURL) as error:
            raise ProbeFailed(ProbeResult.GARBLED) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ProbeFailed(ProbeResult.UNREACHABLE, "the connection was closed without an answer") from error

    async def _ask(self, method: str, path: str, body: bytes | None, *, max_bytes: int) -> Answer:
        if self._session is None:
            self._session = self._open()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        async with self._session.request(
            method, self._base + path, headers=headers, data=body, allow_redirects=False
        ) as response:
            received = bytearray()
            async for part in response.content.iter_any():
                received += part
                if len(received) > max_bytes:
                    raise ProbeFailed(ProbeResult.GARBLED, f"an answer over {max_bytes} bytes")
            return Answer(response.status, bytes(received))

    def _open(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector
        if self._backend.url.startswith("unix:"):
            path = self._backend.url.removeprefix("unix:")
            connector = aiohttp.UnixConnector(path, limit=_CONNECTIONS, keepalive_timeout=_IDLE_S)
        else:
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_IDLE_S, ssl=self._tls())
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=False,
        )

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._backend.url.startswith("https:"):
            return True
        try:
            return ssl.create_default_context(cafile=self._backend.tls_ca or None)
        except (OSError, ssl.SSLError) as error:
            detail = "no connection: the authorities in tls_ca cannot be read"
            raise ProbeFailed(ProbeResult.UNREACHABLE, detail) from error


def _not_connected(error: aiohttp.ClientConnectorError) -> ProbeFailed:
    if error.os_error.errno in _NOBODY_LISTENS and not isinstance(error, aiohttp.ClientConnectorDNSError):
        return ProbeFailed(ProbeResult.REFUSED)
    reason = (error.os_error.strerror or "unreachable").lower()
    return ProbeFailed(ProbeResult.UNREACHABLE, f"no connection: {reason}")
