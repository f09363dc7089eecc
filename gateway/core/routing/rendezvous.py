"""Rendezvous hashing: each session has an order of its own over the backends, and goes to the first that may take it.

Station route.  When a backend leaves, only its own sessions move: the order of the others does not depend on it.  The
same in every worker and after every restart, so nothing here may use Python's own hashes.  Pure.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

LOAD_BOUND: Final = 1.25
"""How much of the mean load a backend may have before its sessions go on to their next one."""

_BITS_64: Final = 2**64 - 1


def number_of(data: bytes | memoryview) -> int:
    """64 bits that stand for ``data``: a session's key or a backend's name."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def score(seed: int, session: int) -> int:
    """How much a session wants a backend: both numbers mixed (the finaliser of SplitMix64); the highest wins."""
    mixed = seed ^ session
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _BITS_64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _BITS_64
    return mixed ^ (mixed >> 31)
