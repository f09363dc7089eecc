"""Which headers cross the gateway, in each direction; allowlist up, blocklist down.

Stations forward and relay.  Upstream goes only what is named here: never the client's ``Authorization``, cookies,
forwarded-for headers, or vLLM's own switches (``X-Vllm-Priority``, ``X-data-parallel-rank``).  Downstream goes
everything but hop-by-hop headers (RFC 9110 section 7.6.1) and what the gateway states itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

UPSTREAM_ALLOWED: Final = frozenset({"accept", "user-agent", "traceparent", "tracestate", "x-session-id"})

_NOT_DOWNSTREAM: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"x-request-id",
        b"x-gateway-backend",
        b"x-gateway-profile",
        b"x-gateway-error",
        b"x-gateway-reasoning-stream",
        b"set-cookie",
        b"access-control-allow-origin",
        b"access-control-allow-credentials",
        b"access-control-expose-headers",
    }
)

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:\-]{1,128}")


def client_request_id(value: str | None) -> str | None:
    """The client's ``X-Request-Id`` when it is fit to be logged and sent on, else None (then one is made)."""
    return value if value is not None and _REQUEST_ID.fullmatch(value) else None


def upstream_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Header lines for the backend out of the client's."""
    return b"".join(
        b"%b: %b\r\n" % (name.lower().encode("ascii"), value.encode("utf-8", "surrogateescape"))
        for name, value in headers
        if name.lower() in UPSTREAM_ALLOWED
    )


def downstream_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines for the client out of the backend's."""
    return b"".join(b"%b: %b\r\n" % (name, value) for name, value in headers if name not in _NOT_DOWNSTREAM)
