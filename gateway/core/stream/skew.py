"""How far our decode rate and the engine's own are apart, for streams of which both are known.

Read at ingest, for the log and the metrics.  It is the check on everything else that is measured here: both sides time
the same steps, so what differs is the way to us, or a defect.  Pure.
"""

from __future__ import annotations

from typing import Final

from gateway.core.stream.summary import Exactness, Flag, StreamSummary

_MS: Final = 1000.0
_INCOMPARABLE: Final = frozenset({Flag.SEVERAL_CHOICES, Flag.CLIENT_BLOCKED})


def decode_skew(summary: StreamSummary) -> float | None:
    """``decode_tps`` / (1000 / the engine's ``mean_itl_ms``): 1 where both agree, below 1 where we saw it slower.

    None unless the engine told, counted the tokens itself, and made one choice: of several only the sum is seen here.
    A client that held the answer back set the pace itself.
    """
    engine = summary.engine
    if engine is None or not engine.mean_itl_ms or engine.mean_itl_ms < 0 or summary.decode_tps is None:
        return None
    if summary.total_exactness is not Exactness.EXACT or not _INCOMPARABLE.isdisjoint(summary.flags):
        return None
    return summary.decode_tps * engine.mean_itl_ms / _MS
