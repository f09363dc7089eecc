"""Our decode rate against the engine's own: when the two may be compared, and what comes of it."""

from __future__ import annotations

import msgspec
import pytest

from gateway.core.stream.skew import decode_skew
from gateway.core.stream.summary import EngineMetrics, Exactness, Flag, StreamSummary

KNOWN = StreamSummary(
    decode_tps=80.0, total_exactness=Exactness.EXACT, engine=EngineMetrics(mean_itl_ms=12.5), flags=(Flag.TOOL_CALLS,)
)


@pytest.mark.parametrize("decode_tps,skew", [(80.0, 1.0), (76.0, 0.95), (88.0, 1.1)])
def test_it_is_our_rate_by_the_engines(decode_tps: float, skew: float) -> None:
    assert decode_skew(msgspec.structs.replace(KNOWN, decode_tps=decode_tps)) == pytest.approx(skew)


@pytest.mark.parametrize(
    "changed",
    [
        {"decode_tps": None},
        {"engine": None},
        {"engine": EngineMetrics()},
        {"engine": EngineMetrics(mean_itl_ms=0.0)},
        {"engine": EngineMetrics(mean_itl_ms=-1.0)},
        {"total_exactness": Exactness.ESTIMATED},
        {"total_exactness": Exactness.UNKNOWN},
        {"flags": (Flag.SEVERAL_CHOICES,)},
    ],
)
def test_what_cannot_be_compared_is_not(changed: dict[str, object]) -> None:
    assert decode_skew(msgspec.structs.replace(KNOWN, **changed)) is None
