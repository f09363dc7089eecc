"""The runtime settings as workers get them: one policy, in the units of its names.

Not a station.  A pure conversion.  What workers know of pools and backends is the fleet's to make, which owns their
state.
"""

from __future__ import annotations

from gateway.core.routing.cors import CorsPolicy
from gateway.core.routing.snapshot import (
    CommentPolicy,
    HeaderPolicy,
    LimitPolicy,
    SidePolicy,
    TimerPolicy,
    WorkerPolicy,
)
from gateway.core.stream.delivery.mode import Delivery, ReasoningPolicy, ThinkTags
from gateway.settings.reasoning import UNSAID, ReasoningDelivery
from gateway.settings.runtime import Runtime


def to_policy(runtime: Runtime) -> WorkerPolicy:
    """The runtime settings that workers need, in the units of their names."""
    return WorkerPolicy(
        timers=TimerPolicy(**runtime.timers.model_dump()),
        limits=LimitPolicy(**runtime.limits.model_dump()),
        headers=HeaderPolicy(**runtime.headers.model_dump()),
        comments=CommentPolicy(**runtime.comments.model_dump()),
        cors=CorsPolicy(**runtime.cors.model_dump()),
        side=SidePolicy(**runtime.side.model_dump()),
    )


def to_reasoning(section: ReasoningDelivery) -> ReasoningPolicy:
    """What a pool's or a model's section says of reasoning."""
    return ReasoningPolicy(
        mode=None if section.mode == UNSAID else Delivery(section.mode),
        tags=ThinkTags(opened=section.think_opened) if section.think_tags else None,
    )
