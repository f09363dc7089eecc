"""Which backend gets a request: pure choices over a snapshot and in-flight counts.

Station route.  Least in-flight, this worker's and the others' together; ties go round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import BackendView, Snapshot
from gateway.errors import NothingServing, UnknownModel


def pool_for(snapshot: Snapshot, model: str) -> str:
    """The pool that serves ``model``; "" (none named) is served when there is just one pool.

    Raises UnknownModel, or NothingServing while no backend has yet said what it serves.
    """
    for pool in snapshot.pools:
        if model in pool.models or model in pool.adapters:
            return pool.name
    for backend in snapshot.backends:
        if model in backend.models and not _names_models(snapshot, backend.pool):
            return backend.pool
    if len(snapshot.pools) == 1 and not model:
        return snapshot.pools[0].name
    if not model:
        raise UnknownModel("several pools are served here: name a model", param="model")
    if any(not pool.models and not _known(snapshot, pool.name) for pool in snapshot.pools):
        raise NothingServing(
            f"The model `{model[:128]}` is not known yet, and not every pool has reported its models; try again shortly",
            retry_after_s=snapshot.policy.away_s,
        )
    raise UnknownModel(f"The model `{model[:128]}` does not exist.", param="model")


def _names_models(snapshot: Snapshot, pool: str) -> bool:
    return any(p.name == pool and p.models for p in snapshot.pools)


def _known(snapshot: Snapshot, pool: str) -> bool:
    return any(b.models for b in snapshot.backends if b.pool == pool)


def candidates(snapshot: Snapshot, pool: str, model: str, *, tried: Collection[str]) -> list[BackendView]:
    """Backends of ``pool`` that may get a request for ``model`` now, without those already ``tried``.

    Serving ones; when there are none, those not yet looked at (just after the start, better tried than refused).
    A backend that is known not to serve the model is left out, and of a LoRA adapter one that does not report it.
    """
    adapter = any(model in it.adapters for it in snapshot.pools if it.name == pool)
    of_pool = [
        b
        for b in snapshot.backends
        if b.pool == pool and b.name not in tried and (model in b.models if adapter else _may_serve(b, model))
    ]
    serving = [b for b in of_pool if b.state is BackendState.SERVING]
    return serving or [b for b in of_pool if b.state is BackendState.UNKNOWN]


def _may_serve(backend: BackendView, model: str) -> bool:
    return not model or not backend.models or model in backend.models


def least_in_flight(
    backends: Sequence[BackendView], in_flight: Callable[[str], int], *, turn: int
) -> BackendView | None:
    """The backend with the fewest requests in flight; among equals the ``turn``-th, so that ties go round."""
    if len(backends) < 2:
        return backends[0] if backends else None
    loads = [in_flight(b.name) for b in backends]
    least = min(loads)
    equals = [b for b, load in zip(backends, loads, strict=True) if load == least]
    return equals[turn % len(equals)]
