"""Every bound of the admin API in one value.

Made once, in `gateway.app`; the defaults fit an API that people and scrapers use.  Holds no state.
"""

from __future__ import annotations

from msgspec import Struct


class AdminLimits(Struct, frozen=True, kw_only=True):
    """Bounds of connections and requests, of wrong tokens and of open event streams.

    At most ``connections`` are open; each has ``head_s`` for its first request's head and may idle ``idle_s``.
    A body may have ``body_bytes`` and take ``body_s``.  A peer may give ``attempts`` wrong tokens at once and another
    one every ``attempt_every_s``; ``peers`` of them are remembered.  At most ``streams`` follow the live feed; one
    that takes no bytes for ``write_s`` is dropped, one that left is noticed within ``poll_s``, and after
    ``keep_alive_s`` of silence a comment is sent.  On the way out requests get ``stop_s`` to end.
    """

    connections: int = 256
    head_s: float = 10.0
    idle_s: float = 75.0
    body_bytes: int = 1024 * 1024
    body_s: float = 10.0
    attempts: int = 10
    attempt_every_s: float = 3.0
    peers: int = 1024
    streams: int = 32
    poll_s: float = 1.0
    keep_alive_s: float = 15.0
    write_s: float = 10.0
    stop_s: float = 2.0
