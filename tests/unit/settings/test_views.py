"""The policy that workers get; and that the two sides of a policy have the same names and defaults."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from gateway.core.routing.policy import PoisonPolicy, RoutingPolicy
from gateway.core.routing.snapshot import HeaderPolicy, LimitPolicy, SidePolicy, TimerPolicy, WorkerPolicy
from gateway.core.stream.delivery.mode import Delivery, ReasoningPolicy, ThinkTags
from gateway.settings import parse, to_policy
from gateway.settings.reasoning import ModelReasoning, Reasoning, Side
from gateway.settings.routing import Poison, Routing
from gateway.settings.runtime import Headers, Limits, Timers
from gateway.settings.section import Section
from gateway.settings.views import to_reasoning

TEXT = """\
pools:
  - {name: p, backends: [{name: a, url: "http://x"}]}
timers: {stall_s: 30}
limits: {body_bytes: 1 MiB}
headers: {backend_name: false}
probes: {health_s: 7}
"""
RUNTIME = parse(TEXT, "f.yaml", environ={}, look_at_host=False).runtime


WITHOUT_SETTING = {"profile_name"}
"""Of no effect until backends have profiles, so not offered."""


@pytest.mark.parametrize(
    "section, policy",
    [
        (Timers, TimerPolicy),
        (Limits, LimitPolicy),
        (Headers, HeaderPolicy),
        (Side, SidePolicy),
        (Routing, RoutingPolicy),
        (Poison, PoisonPolicy),
    ],
)
def test_a_section_and_its_policy_have_the_same_names_and_defaults(section: type[Section], policy: Any) -> None:
    values = {name: value for name, value in msgspec.structs.asdict(policy()).items() if name not in WITHOUT_SETTING}
    assert section().model_dump() == values


def test_the_policy_holds_what_was_configured() -> None:
    assert to_policy(RUNTIME) == WorkerPolicy(
        timers=TimerPolicy(stall_s=30.0),
        limits=LimitPolicy(body_bytes=1024**2),
        headers=HeaderPolicy(backend_name=False),
        away_s=7.0,
    )


def test_what_a_pool_or_model_says_of_reasoning_becomes_its_policy() -> None:
    assert to_reasoning(Reasoning()) == ReasoningPolicy()
    assert to_reasoning(Reasoning(mode="drop")) == ReasoningPolicy(mode=Delivery.DROP)
    assert to_reasoning(ModelReasoning(model="m", think_tags=True, think_opened=True)) == ReasoningPolicy(
        tags=ThinkTags(opened=True)
    )


def test_the_modes_of_the_settings_are_those_of_delivery() -> None:
    assert set(get_args(Reasoning.model_fields["mode"].annotation)) == {"default", *Delivery}
