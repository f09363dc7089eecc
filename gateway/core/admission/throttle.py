"""Wrong tokens and keys cost: a token bucket for each peer, in bounded memory.

Operators' tokens are not even looked at while their peer is out of attempts; clients' keys are, see
:mod:`gateway.proxy.keyring`.  Pure but for its own table; time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct


class _Bucket(Struct):
    left: float
    at: float


class Throttle:
    """Owner of the buckets.  A peer starts with ``burst`` attempts and gains one every ``every_s``."""

    def __init__(self, burst: int, every_s: float, *, peers: int) -> None:
        """At most ``peers`` buckets are kept; the one touched longest ago goes first."""
        self._burst = float(burst)
        self._every_s = every_s
        self._peers = peers
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, peer: str, now: float) -> float:
        """How long ``peer`` has to wait for its next attempt; 0: it may try."""
        bucket = self._buckets.get(peer)
        if bucket is None:
            return 0.0
        self._refill(bucket, now)
        return 0.0 if bucket.left >= 1.0 else (1.0 - bucket.left) * self._every_s

    def failed(self, peer: str, now: float) -> None:
        """An attempt of ``peer`` failed."""
        bucket = self._buckets.setdefault(peer, _Bucket(left=self._burst, at=now))
        self._refill(bucket, now)
        bucket.left = max(0.0, bucket.left - 1.0)
        self._buckets.move_to_end(peer)
        while len(self._buckets) > self._peers:
            self._buckets.popitem(last=False)

    def _refill(self, bucket: _Bucket, now: float) -> None:
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) / self._every_s)
        bucket.at = now
