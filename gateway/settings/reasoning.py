"""The settings of reasoning delivery: what clients get that ask for nothing, and whether reasoning stands in the text.

Not a station.  A part of the runtime settings; the modes are those of ``gateway.core.stream.delivery.mode``.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from gateway.core.routing.snapshot import SidePolicy
from gateway.settings.section import Section
from gateway.settings.types import Bytes, Count, ModelName, Seconds, Switch

UNSAID: Final = "default"

_SIDE: Final = SidePolicy()


class ReasoningDelivery(Section):
    """How clients get reasoning that do not say so themselves."""

    mode: Literal["default", "pass", "reasoning", "reasoning_content", "both", "drop", "events", "side", "tags"] = (
        Field(
            UNSAID,
            description="For requests without `X-Gateway-Reasoning`; the modes are in docs/clients.md. `default`: `pass`, or "
            "`reasoning` with think_tags. Where an endpoint cannot do the mode it passes what the engine sends.",
        )
    )
    think_tags: Switch = Field(
        default=False,
        description="The engine has no reasoning parser: `<think>...</think>` is split out of the text of chat. Off, "
        "since an engine with a parser (`--reasoning-parser`) does it better and counts the tokens.",
    )
    think_opened: Switch = Field(
        default=False,
        description="With think_tags: the chat template ends the prompt with `<think>`, so the text begins inside and "
        "only `</think>` comes.",
    )


class ModelReasoning(ReasoningDelivery):
    """One model of the pool for which other values hold."""

    model: ModelName = Field(
        description="Its name, not one of its aliases. What is left out has its default, not the pool's."
    )


class Reasoning(ReasoningDelivery):
    """How clients of this pool get reasoning that do not say so themselves (`X-Gateway-Reasoning`)."""

    models: tuple[ModelReasoning, ...] = Field((), description="Models that are treated otherwise; none by default.")


class Side(Section):
    """Reasoning on a stream of its own (`X-Gateway-Reasoning: side`)."""

    keep_s: Seconds = Field(
        _SIDE.keep_s,
        description="How long it can be read after its answer has ended. A client opens it when it sees the answer's "
        "head, so a minute is much.",
    )
    buffer_bytes: Bytes = Field(
        _SIDE.buffer_bytes,
        description="How much of one is kept for who comes late; the oldest events go first. A reader that is behind by "
        "as much is dropped with an error event, so that the answer never waits for it.",
    )
    streams: Count = Field(
        _SIDE.streams,
        description="How many one worker has. When there is no place the oldest that has ended goes; when none has, the "
        "request gets 429.",
    )
