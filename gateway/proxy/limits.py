"""What one worker allows its clients' connections, and what it says to one too many.

Below every station.  Values only; :mod:`gateway.proxy.wire` enforces them.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from gateway.errors import Overloaded
from gateway.proxy.envelope import error_response


class WireLimits(Struct, frozen=True, kw_only=True):
    """What one worker allows its clients' connections.

    ``idle_s`` bounds a connection between requests, ``head_s`` a request head from its first byte; ``linger_s`` is how
    long the rest of a refused body is read and dropped, so that the client gets to read why; ``connections`` is how
    many may be open at once.  The body's limits are the admit station's.
    """

    idle_s: float = 75.0
    head_s: float = 30.0
    linger_s: float = 2.0
    connections: int = 16384


TOO_MANY_CONNECTIONS: Final = error_response(
    Overloaded("too many connections are open; try again shortly", retry_after_s=1.0),
    dialect=None,
    headers=b"Connection: close\r\n",
)
