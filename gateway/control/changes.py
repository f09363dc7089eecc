"""What a new configuration changes, in sentences for people.

Used when a configuration is reloaded or checked.  Pure; must not apply anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.drivers import DRIVERS
from gateway.settings import Backend, Pool, Runtime

_OWN_SENTENCES = ("name", "models", "backends", "lora")


def runtime_changes(old: Runtime, new: Runtime) -> tuple[str, ...]:
    """Sentences in the order of the file; empty when both mean the same."""
    pools, pools_before = _by_name(new.pools), _by_name(old.pools)
    return (
        *(f"pool {name}: removed" for name in pools_before if name not in pools),
        *(line for name, pool in pools.items() for line in _pool(pools_before.get(name), pool)),
        *_backends(old, new),
        *_values("", old.model_dump(exclude={"pools"}), new.model_dump(exclude={"pools"})),
    )


def _by_name(pools: tuple[Pool, ...]) -> dict[str, Pool]:
    return {pool.name: pool for pool in pools}


def _pool(old: Pool | None, new: Pool) -> Iterator[str]:
    if old is None:
        yield f"pool {new.name}: added"
        return
    if old.models != new.models:
        yield f"pool {new.name}: models {_models(old)} → {_models(new)}"
    yield from _adapters(old, new)
    left_out = set(_OWN_SENTENCES)
    yield from _values(f"pool {new.name}: ", old.model_dump(exclude=left_out), new.model_dump(exclude=left_out))


def _adapters(old: Pool, new: Pool) -> Iterator[str]:
    before, after = {it.name: it for it in old.lora}, {it.name: it for it in new.lora}
    for name in before:
        if name not in after:
            yield f"pool {new.name}: LoRA adapter {name} removed; engines that have it loaded keep it"
    for name, adapter in after.items():
        if name not in before:
            yield f"pool {new.name}: LoRA adapter {name} added"
            continue
        prefix = f"pool {new.name}: LoRA adapter {name}: "
        yield from _values(prefix, before[name].model_dump(), adapter.model_dump())


def _models(pool: Pool) -> str:
    return ", ".join(pool.models) or "(what its backends report)"


def _backends(old: Runtime, new: Runtime) -> Iterator[str]:
    before, after = dict(_placed(old)), dict(_placed(new))
    for name, (_, backend) in before.items():
        if name not in after:
            engine = "" if DRIVERS[backend.driver].manages else ", its engine is left alone"
            yield f"backend {name}: removed; answers that are open go on{engine}"
    for name, (pool, backend) in after.items():
        if name not in before:
            yield f"backend {name}: added to pool {pool} at {backend.url}"
            continue
        pool_before, backend_before = before[name]
        if pool_before != pool:
            yield f"backend {name}: moved from pool {pool_before} to {pool}"
        yield from _values(f"backend {name}: ", backend_before.model_dump(), backend.model_dump())


def _placed(runtime: Runtime) -> Iterator[tuple[str, tuple[str, Backend]]]:
    for pool in runtime.pools:
        for backend in pool.backends:
            yield backend.name, (pool.name, backend)


def _values(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """One sentence for each value that differs, sections by their path."""
    for key, value in new.items():
        before = old[key]
        if isinstance(value, Mapping):
            yield from _values(f"{prefix}{key}.", before, value)
        elif before != value:
            yield f"{prefix}{key} {_told(before)} → {_told(value)}"


def _told(value: Any) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:.12g}"
        case "" | ():
            return "(none)"
        case {"name": name, "model": model}:
            return f"{name} for {model}"
        case {"model": model, **rest}:
            return f"{model} ({', '.join(f'{key} {_told(it)}' for key, it in rest.items())})"
        case tuple() | list():
            return ", ".join(map(_told, value))
        case _:
            return str(value)
