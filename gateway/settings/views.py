"""The runtime settings as workers get them: one policy, in the units of its names.

Not a station.  A pure conversion.  What workers know of pools and backends is the fleet's to make, which owns their
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gateway.core.routing.adapters import Adapter, Orders
from gateway.core.routing.cors import CorsPolicy
from gateway.core.routing.health import HealthPolicy
from gateway.core.routing.parameters import ParameterPolicy
from gateway.core.routing.policy import PoisonPolicy, RoutingPolicy
from gateway.core.routing.snapshot import (
    Alias,
    CommentPolicy,
    HeaderPolicy,
    LimitPolicy,
    PoolView,
    SidePolicy,
    TimerPolicy,
    WorkerPolicy,
)
from gateway.core.stream.delivery.mode import Delivery, ReasoningPolicy, ThinkTags
from gateway.settings.reasoning import UNSAID, ReasoningDelivery
from gateway.settings.runtime import Pool, Runtime

SUSPECT_S: Final = 0.5
"""Period of probes while something is wrong: a restarted engine serves again within this and one probe."""


def to_policy(runtime: Runtime) -> WorkerPolicy:
    """The runtime settings that workers need, in the units of their names."""
    return WorkerPolicy(
        timers=TimerPolicy(**runtime.timers.model_dump()),
        limits=LimitPolicy(**runtime.limits.model_dump()),
        headers=HeaderPolicy(**runtime.headers.model_dump()),
        parameters=ParameterPolicy(**runtime.parameters.model_dump()),
        comments=CommentPolicy(**runtime.comments.model_dump()),
        cors=CorsPolicy(**runtime.cors.model_dump()),
        poison=PoisonPolicy(**runtime.poison.model_dump()),
        side=SidePolicy(**runtime.side.model_dump()),
        away_s=runtime.probes.health_s,
    )


def health_policy(runtime: Runtime) -> HealthPolicy:
    """The thresholds of the health machine that ``runtime`` asks for."""
    probes = runtime.probes
    return HealthPolicy(
        fall=probes.fall, rise=probes.rise, period_s=probes.health_s, suspect_s=min(SUSPECT_S, probes.health_s)
    )


def to_reasoning(section: ReasoningDelivery) -> ReasoningPolicy:
    """What a pool's or a model's section says of reasoning."""
    return ReasoningPolicy(
        mode=None if section.mode == UNSAID else Delivery(section.mode),
        tags=ThinkTags(opened=section.think_opened) if section.think_tags else None,
    )


def to_adapters(pool: Pool) -> tuple[Adapter, ...]:
    """The LoRA adapters of a pool."""
    return tuple(Adapter(name=it.name, path=it.path, load=it.load) for it in pool.lora)


def unwanted_adapters(runtime: Runtime, orders: Orders) -> dict[str, frozenset[str]]:
    """By pool, the LoRA adapters that clients are not to see, even where an engine reports them."""
    return {
        pool.name: frozenset(it.name for it in to_adapters(pool) if not it.wanted(orders.get(pool.name, {})))
        for pool in runtime.pools
    }


def to_pool_view(pool: Pool, *, ordered: Mapping[str, bool] = MappingProxyType({})) -> PoolView:
    """A pool as workers know it; ``ordered`` is what operators said of its LoRA adapters."""
    return PoolView(
        name=pool.name,
        models=pool.models,
        adapters=tuple(it.name for it in to_adapters(pool) if it.wanted(ordered)),
        concurrency=pool.concurrency,
        queue=pool.queue,
        queue_s=pool.queue_s,
        deadline_s=pool.deadline_s,
        hold_s=pool.hold_s,
        aliases=tuple(Alias(alias.name, alias.model) for alias in pool.aliases),
        routing=msgspec.convert(pool.routing.model_dump(), RoutingPolicy),
        reasoning=to_reasoning(pool.reasoning),
        model_reasoning={it.model: to_reasoning(it) for it in pool.reasoning.models},
    )
