"""The ways to choose a backend other than plain least in-flight: pure functions over candidates and their load.

Station route.  ``load`` is what is in flight on a backend over all workers.  ``draw`` gives numbers from [0, 1), so
that randomness stays an argument.  ``weigh`` gives the weight of a backend in its slow start, 1 for all others.  None
of them is asked where a pool keeps the default and nobody is new: that is :func:`~.select.least_in_flight` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil

from gateway.core.routing.curve import CHANGED
from gateway.core.routing.rendezvous import LOAD_BOUND, score
from gateway.core.routing.select import least_in_flight
from gateway.core.routing.snapshot import BackendView

Load = Callable[[str], int]
Draw = Callable[[], float]
Weigh = Callable[[BackendView], float]


def least_by_weight(backends: Sequence[BackendView], load: Load, *, weigh: Weigh, draw: Draw) -> BackendView:
    """The fewest in flight for its weight.

    What is drawn breaks ties, and lets a backend of weight w have w times its part also where nothing is in flight.
    """
    return min(backends, key=lambda backend: (load(backend.name) + draw()) / weigh(backend))


def power_of_two(backends: Sequence[BackendView], load: Load, *, weigh: Weigh | None = None, draw: Draw) -> BackendView:
    """The one with fewer in flight of two that are drawn."""
    count = len(backends)
    if count == 1:
        return backends[0]
    first, second = int(draw() * count), int(draw() * (count - 1))
    second += second >= first
    pair = backends[first], backends[second]
    if weigh is not None:
        return least_by_weight(pair, load, weigh=weigh, draw=draw)
    return min(pair, key=lambda backend: load(backend.name))


def by_session(
    backends: Sequence[BackendView], load: Load, *, session: int, seeds: Mapping[str, int], weigh: Weigh | None = None
) -> BackendView:
    """The session's own backend, or the next one in the session's own order while that has more than its part.

    Its part is :data:`LOAD_BOUND` times the mean, this request counted; there is always one below it.
    """
    total = 1 + sum(load(backend.name) for backend in backends)
    weights = [1.0 if weigh is None else weigh(backend) for backend in backends]
    unit = LOAD_BOUND * total / sum(weights)
    free = [
        backend
        for backend, part in zip(backends, weights, strict=True)
        if load(backend.name) < ceil(unit * part - 1e-9)  # so that a rounding error is no place
    ]
    return max(free, key=lambda backend: score(seeds[backend.name], session))


def fastest(
    backends: Sequence[BackendView],
    load: Load,
    *,
    rate: Callable[[str, int], float | None],
    weigh: Weigh | None = None,
    draw: Draw,
    turn: int,
) -> BackendView | None:
    """Where a stream is predicted to be fastest, itself counted; of those that are about as fast, where the fewest are.

    In its slow start a backend counts as if it had more streams, by its weight.  One that was never measured has no
    prediction: it gets the request as long as it has no more in flight than the fastest one, so that it comes to be
    measured; among several such the one with the fewest.
    """
    predicted: list[tuple[float, BackendView]] = []
    unmeasured: list[BackendView] = []
    for backend in backends:
        streams = load(backend.name) + 1
        tps = rate(backend.name, streams if weigh is None else ceil(streams / weigh(backend)))
        if tps is None:
            unmeasured.append(backend)
        else:
            predicted.append((tps, backend))
    least_tps = (1.0 - CHANGED) * max((tps for tps, _ in predicted), default=0.0)
    best = _least([it for tps, it in predicted if tps >= least_tps], load, weigh=weigh, draw=draw, turn=turn)
    other = _least(unmeasured, load, weigh=weigh, draw=draw, turn=turn)
    if best is None or other is None:
        return best or other
    return _least([other, best], load, weigh=weigh, draw=draw, turn=0)  # of equals the first


def to_be_tried(backends: Sequence[BackendView], load: Load, *, old: Collection[str]) -> BackendView | None:
    """One that is idle and of which what is known is ``old``; None: there is none."""
    return next((it for it in backends if it.name in old and load(it.name) == 0), None)


def _least(
    backends: Sequence[BackendView], load: Load, *, weigh: Weigh | None, draw: Draw, turn: int
) -> BackendView | None:
    if weigh is None or not backends:
        return least_in_flight(backends, load, turn=turn)
    return least_by_weight(backends, load, weigh=weigh, draw=draw)
