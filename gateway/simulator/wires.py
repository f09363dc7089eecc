"""What the wires of a simulated box do, whatever NCCL believes of them.

Pure.  Latency and bandwidth of a protocol are NCCL's belief times the box's own factors; peer access slows when many
streams crowd it; a broken graph has a measured curve of its own.  Seconds and bytes.  Must not choose anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.simulator.presets import Box

_CROWD = 100  # streams at which ``Box.p2p_crowding`` counts in full


def crowded(box: Box, streams: int) -> float:
    """By how much a byte from card to card takes longer while so many streams decode."""
    return 1.0 + box.p2p_crowding * max(0, streams - 1) / _CROWD


def along(points: Sequence[tuple[float, float]], payload_bytes: float, *, widened: float) -> float:
    """The curve at this size: straight from point to point, and beyond both ends as in the piece beside them.

    Its last piece is that of bandwidth: so many times more channels (``widened``) carry so many times more there.
    """
    last_bytes = points[-2][0]
    if payload_bytes > last_bytes:
        (from_bytes, from_s), (to_bytes, to_s) = points[-2:]
        return from_s + (payload_bytes - from_bytes) * (to_s - from_s) / (to_bytes - from_bytes) / widened
    at = next(at for at, (size, _) in enumerate(points[1:], start=1) if payload_bytes <= size)
    (from_bytes, from_s), (to_bytes, to_s) = points[at - 1], points[at]
    return from_s + (payload_bytes - from_bytes) * (to_s - from_s) / (to_bytes - from_bytes)
