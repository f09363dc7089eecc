"""A backend that says "not now": 503 or 429 before a byte of an answer.

Station forward.  It is busy, not ill: nothing of the request was accepted, so it goes elsewhere, and the backend is
passed over for a moment while another is free.  It never speaks against its health.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BUSY_STATUSES: Final = frozenset({429, 503})
"""vLLM answers 503 when its queue is full and while it is scaling; other servers 429."""

BUSY_S: Final = 1.0
"""For how long, where the backend does not say: its queue moves on within a second."""

BUSY_MAX_S: Final = 30.0
"""The longest that a backend is believed: it may be free much sooner."""

RETRY_AFTER: Final = b"retry-after"


def busy_s(headers: Iterable[tuple[bytes, bytes]]) -> float:
    """For how long a backend that answered with ``headers`` is passed over.

    A Retry-After in seconds counts; a date does not, since the clocks of two machines need not agree.
    """
    stated = next((value for name, value in headers if name == RETRY_AFTER), b"")
    if not stated.isdigit() or len(stated) > 9:
        return BUSY_S
    return min(BUSY_MAX_S, max(BUSY_S, float(stated)))
