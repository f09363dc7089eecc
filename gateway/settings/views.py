"""Settings as the other parts need them: the policy for workers, the first views of pools and backends.

Not a station.  Pure conversions; who owns the state of a backend starts from here.
"""

from __future__ import annotations

from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import BackendView, HeaderPolicy, LimitPolicy, PoolView, TimerPolicy, WorkerPolicy
from gateway.settings.runtime import Runtime


def to_policy(runtime: Runtime) -> WorkerPolicy:
    """The runtime settings that workers need, in the units of their names."""
    return WorkerPolicy(
        timers=TimerPolicy(**runtime.timers.model_dump()),
        limits=LimitPolicy(**runtime.limits.model_dump()),
        headers=HeaderPolicy(**runtime.headers.model_dump()),
    )


def to_pools(runtime: Runtime) -> tuple[PoolView, ...]:
    """The pools in the order of the file."""
    return tuple(PoolView(name=pool.name, models=pool.models) for pool in runtime.pools)


def to_backends(runtime: Runtime) -> tuple[BackendView, ...]:
    """Every backend in the order of the file, its state unknown and its models not yet asked for."""
    return tuple(
        BackendView(
            name=backend.name,
            pool=pool.name,
            url=backend.url,
            state=BackendState.UNKNOWN,
            api_key_env=backend.api_key_env,
            tls_ca=backend.tls_ca,
        )
        for pool in runtime.pools
        for backend in pool.backends
    )
