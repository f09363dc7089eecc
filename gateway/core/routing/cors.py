"""Which web pages may read answers: the allowlist of origins, and what a browser is told (WHATWG Fetch, CORS protocol).

Stations admit and relay.  Off while the list is empty: then no header is sent, and pages of other sites read nothing.
Keys travel in ``Authorization``, never in cookies, so credentials are not allowed.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

ANY: Final = "*"

EXPOSED: Final = (
    "X-Request-Id",
    "X-Gateway-Backend",
    "X-Gateway-Profile",
    "X-Gateway-Error",
    "X-Gateway-Reasoning-Stream",
    "Retry-After",
    "Server-Timing",
)
"""Headers of an answer that a page may read besides those that it always may."""

_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, \t-]{0,2048}")


class CorsPolicy(Struct, frozen=True, kw_only=True):
    """``origins``: those allowed, as browsers spell them, or ``*``; ``max_age_s``: how long a browser may remember."""

    origins: tuple[str, ...] = ()
    max_age_s: float = 600.0


def answer_lines(policy: CorsPolicy, origin: str | None) -> bytes:
    """Header lines of every answer to a page of ``origin``; none where the policy is off."""
    if not policy.origins:
        return b""
    lines = b"Vary: Origin\r\n"
    if origin is not None and (ANY in policy.origins or origin in policy.origins):
        shown = ANY if ANY in policy.origins else origin
        lines += b"Access-Control-Allow-Origin: %b\r\nAccess-Control-Expose-Headers: %b\r\n" % (
            shown.encode("ascii"),
            ", ".join(EXPOSED).encode("ascii"),
        )
    return lines


def preflight_lines(
    policy: CorsPolicy, *, methods: Iterable[str], asked_headers: str | None, asks_private: bool
) -> bytes:
    """What a preflight of an allowed origin is told beside :func:`answer_lines`.

    The headers that the page wants to send are allowed by name: which of them count is decided when they come.
    ``asks_private``: the page lies in a more public network than the gateway.
    """
    lines = b"Access-Control-Allow-Methods: %b\r\nAccess-Control-Max-Age: %d\r\n" % (
        ", ".join(sorted(methods)).encode("ascii"),
        policy.max_age_s,
    )
    if asked_headers and _NAMES.fullmatch(asked_headers):
        lines += b"Access-Control-Allow-Headers: %b\r\n" % asked_headers.encode("ascii")
    if asks_private:
        lines += b"Access-Control-Allow-Private-Network: true\r\n"
    return lines
