"""How long after a client has left its engine still works for it.

The engine's own gauge is asked as fast as it answers. The moment of the close is the client's; the moment of
freedom is when the answer "0" had been read, so a figure errs upwards by at most one `resolution_s`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.live.rig.engine import Engine
from tests.live.rig.processes import Late, until
from tests.live.rig.wire import ENDLESS_TOKENS

PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Freed:
    """`delay_s` from the close to the engine's zero; `resolution_s` the longest gap between two looks at it."""

    delay_s: float
    resolution_s: float


def freed(engine: Engine, left_at_s: float) -> Freed:
    """Look until the engine works on nothing and queues nothing; `left_at_s` is on time.perf_counter."""
    looked_at_s = left_at_s
    resolution_s = 0.0
    while looked_at_s - left_at_s < PATIENCE_S:
        busy = engine.running() + engine.waiting()
        now_s = time.perf_counter()
        resolution_s = max(resolution_s, now_s - looked_at_s)
        looked_at_s = now_s
        if not busy:
            return Freed(now_s - left_at_s, resolution_s)
    raise Late(f"the engine still works {PATIENCE_S} s after its only client left")


def at_percent(values: list[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest value that `percent` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100).__trunc__() - 1)]


@contextmanager
def freed_early(engine: Engine) -> Iterator[None]:
    """Inside, a client leaves an endless answer of an engine that is otherwise idle: it must stop, and soon.

    Not because the answer had come to its end: that would say nothing about leaving.
    """
    before = engine.generated_tokens()
    yield
    until(lambda: engine.running() == 0, "the engine free again", within_s=2)
    if engine.generated_tokens() - before >= ENDLESS_TOKENS:
        raise AssertionError("the engine finished the answer that its client had left")
