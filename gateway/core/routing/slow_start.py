"""A backend that begins to serve gets a growing share: its weight against those that have served for long.

Station route.  A fresh vLLM engine is slow at first, and one that comes back after a fault is not trusted at once.
Only the ratio of two weights means anything, so backends that are equally new share as if none were.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.routing.backend import ALWAYS
from gateway.core.routing.snapshot import BackendView

FLOOR: Final = 0.1
"""Weight at the first moment: something has to go there for it to become warm."""


def weight(backend: BackendView, slow_start_s: float, *, now: float) -> float:
    """From :data:`FLOOR` when it begins to serve to 1 after ``slow_start_s``, in a straight line."""
    age_s = now - backend.serving_since
    if age_s >= slow_start_s:
        return 1.0
    return FLOOR + (1.0 - FLOOR) * max(0.0, age_s) / slow_start_s


def warm_at(backends: Iterable[BackendView], slow_start_s: float) -> float:
    """When the last of ``backends`` will have the weight 1."""
    return max((backend.serving_since + slow_start_s for backend in backends), default=ALWAYS)
