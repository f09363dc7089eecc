"""Numbers and times in words: the same everywhere on the command line.

Pure.  Takes seconds, tokens and bytes, gives short text; what is not known is a dash, never a zero.
"""

from __future__ import annotations

import time
from typing import Final

UNKNOWN: Final = "–"

_STEPS: Final = ((60.0, 1.0, "s"), (3600.0, 60.0, "min"), (86_400.0, 3600.0, "h"), (float("inf"), 86_400.0, "d"))


def span(seconds: float) -> str:
    """How long, coarsely: ``3 s``, ``12 min``, ``5 h``, ``8 d``."""
    for below, unit_s, unit in _STEPS:
        if seconds < below:
            return f"{int(seconds // unit_s)} {unit}"
    raise ValueError("not a number of seconds")


def ago(wall: float | None, now: float) -> str:
    """How long before ``now``: ``3 s ago``; clocks that differ a little are taken as now."""
    return UNKNOWN if wall is None else f"{span(max(0.0, now - wall))} ago"


def moment(wall: float) -> str:
    """Local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


def seconds(value: float | None) -> str:
    """A duration in seconds with about three digits that matter: ``0.004``, ``0.41``, ``6.42``, ``612``."""
    if value is None:
        return UNKNOWN
    if value >= 100:
        return f"{value:.0f}"
    if 0 < value < 0.0005:
        return "<0.001"
    return f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.3f}"


def millis(value: float | None) -> str:
    """A duration in milliseconds, given in seconds."""
    if value is None:
        return UNKNOWN
    return f"{value * 1000:.0f}" if value >= 0.1 else f"{value * 1000:.1f}"


def rate(tps: float | None) -> str:
    """Tokens per second."""
    if tps is None:
        return UNKNOWN
    return f"{tps:,.0f}" if tps >= 1000 else f"{tps:.1f}"


def count(number: float | None) -> str:
    """A whole number with thousands marked."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def about(text: str, *, estimated: bool) -> str:
    """``text``, marked where it stands for an estimate."""
    return f"~{text}" if estimated and text != UNKNOWN else text


def plural(number: int, noun: str) -> str:
    """``1 backend``, ``2 backends``, ``1,234 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float | None) -> str:
    """A share of 1 as a percentage."""
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def size(count_bytes: int) -> str:
    """Bytes with a unit that fits: ``512 B``, ``3.2 KiB``."""
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
