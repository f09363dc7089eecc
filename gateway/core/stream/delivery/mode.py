"""The words of reasoning delivery: the modes, which of them an endpoint can do, and what the settings say.

Station admit chooses with it, once per request.  Values only; the machines that do it stand beside.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

from msgspec import Struct

from gateway.core.stream.summary import Dialect


class Delivery(StrEnum):
    """How a client gets reasoning: the values of ``X-Gateway-Reasoning``."""

    PASS = "pass"  # noqa: S105  (not a secret)
    REASONING = "reasoning"
    REASONING_CONTENT = "reasoning_content"
    BOTH = "both"
    DROP = "drop"
    EVENTS = "events"
    SIDE = "side"
    TAGS = "tags"


class Channel(StrEnum):
    """What a piece of an answer is; also its event's name with ``events``."""

    REASONING = "reasoning"
    CONTENT = "content"
    TOOL = "tool"


class ThinkTags(Struct, frozen=True, kw_only=True):
    """The engine has no reasoning parser: its reasoning stands in the text, between ``<think>`` and ``</think>``.

    ``opened``: the chat template puts the opening tag into the prompt, so the text begins inside.
    """

    opened: bool = False


class ReasoningPolicy(Struct, frozen=True, kw_only=True):
    """What the settings say of reasoning for a pool or one of its models.

    ``mode`` None: nothing is said, which is ``pass``, or ``reasoning`` where there are tags to split; ``tags`` None:
    the engine's own parser tells reasoning apart.
    """

    mode: Delivery | None = None
    tags: ThinkTags | None = None

    @property
    def default(self) -> Delivery:
        """The mode of a request that names none."""
        if self.mode is not None:
            return self.mode
        return Delivery.PASS if self.tags is None else Delivery.REASONING


_CHAT_WHOLE: Final = tuple(mode for mode in Delivery if mode is not Delivery.EVENTS)
_HIDING: Final = (Delivery.PASS, Delivery.DROP, Delivery.SIDE)
_NONE: Final = (Delivery.PASS,)


def possible(dialect: Dialect, *, stream: bool, tagged: bool) -> tuple[Delivery, ...]:
    """The modes that make sense on an endpoint.

    Field names and inlining are matters of chat.  Responses and Messages name their events themselves and have items
    and blocks for reasoning, which can be left out; with tags in the text (``tagged``) they have none.  Completions are
    plain text, which has reasoning in it only where it is tagged.
    """
    match dialect:
        case Dialect.CHAT:
            return tuple(Delivery) if stream else _CHAT_WHOLE
        case Dialect.COMPLETIONS:
            return _HIDING if tagged else _NONE
        case Dialect.RESPONSES | Dialect.MESSAGES:
            return _NONE if tagged else _HIDING
        case _:
            assert_never(dialect)
