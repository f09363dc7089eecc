"""The modes, where they make sense, and what counts for who asks for nothing."""

from __future__ import annotations

import pytest

from gateway.core.stream.delivery.mode import Delivery, ReasoningPolicy, ThinkTags, possible
from gateway.core.stream.summary import Dialect

EVERY = set(Delivery)
HIDING = {Delivery.PASS, Delivery.DROP, Delivery.SIDE}


@pytest.mark.parametrize(
    "dialect, stream, tagged, modes",
    [
        (Dialect.CHAT, True, False, EVERY),
        (Dialect.CHAT, True, True, EVERY),
        (Dialect.CHAT, False, False, EVERY - {Delivery.EVENTS}),
        (Dialect.COMPLETIONS, True, False, {Delivery.PASS}),
        (Dialect.COMPLETIONS, False, True, HIDING),
        (Dialect.RESPONSES, True, False, HIDING),
        (Dialect.MESSAGES, False, False, HIDING),
        (Dialect.MESSAGES, True, True, {Delivery.PASS}),
    ],
)
def test_each_endpoint_has_its_modes(dialect: Dialect, stream: bool, tagged: bool, modes: set[Delivery]) -> None:
    assert set(possible(dialect, stream=stream, tagged=tagged)) == modes


def test_reasoning_passes_by_default_and_is_split_where_it_is_tagged() -> None:
    assert ReasoningPolicy().default is Delivery.PASS
    assert ReasoningPolicy(tags=ThinkTags()).default is Delivery.REASONING
    assert ReasoningPolicy(mode=Delivery.DROP, tags=ThinkTags()).default is Delivery.DROP
