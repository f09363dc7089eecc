"""Delivery in an answer that came as one JSON body.

Station relay, before the body is written.  A body that is not what it should be (an error, another shape) goes out as
it came.
"""

from __future__ import annotations

from msgspec import Raw

from gateway.core.stream.delivery.arrange import Arrangement, TakeReasoning
from gateway.core.stream.delivery.choice import TOKEN_NAMES, Choice, Splitters, close_choice, content_text, open_choice
from gateway.core.stream.delivery.frame import ENTRIES, FIELDS, NULL, UNREADABLE, Fields, encode
from gateway.core.stream.delivery.messages import thinking_of, without_thinking
from gateway.core.stream.delivery.mode import ThinkTags
from gateway.core.stream.delivery.responses import reasoning_of, without_reasoning
from gateway.core.stream.summary import Dialect


def deliver_choices(body: bytes, arrangement: Arrangement, *, key: str, tags: ThinkTags | None) -> bytes:
    """A chat or completions body under ``arrangement``; ``key``: ``message`` or ``text``."""
    try:
        fields = FIELDS.decode(body)
        choices = [open_choice(entry, key) for entry in ENTRIES.decode(fields["choices"])]
        texts = [content_text(choice) for choice in choices] if tags is not None else []
    except (*UNREADABLE, KeyError):
        return body
    if tags is not None:
        splitters = Splitters(tags)
        for choice, text in zip(choices, texts, strict=True):
            splitters.split(choice, text, over=True)
    arranged = [_arranged(choice, arrangement) for choice in choices]
    if all(new is choice.fields for new, choice in zip(arranged, choices, strict=True)):
        return body
    return encode(fields | {"choices": Raw(encode(arranged))})


def deliver_hidden(body: bytes, dialect: Dialect, take: TakeReasoning) -> bytes:
    """A Responses or Messages body without its reasoning, which ``take`` gets."""
    try:
        fields = FIELDS.decode(body)
        if dialect is Dialect.RESPONSES:
            texts, without = reasoning_of(fields), without_reasoning(fields)
        else:
            texts, without = thinking_of(fields), without_thinking(fields)
    except UNREADABLE:
        return body
    for text in texts:
        take(0, text)
    return body if without is fields else encode(without)


def _arranged(choice: Choice, arrangement: Arrangement) -> Fields:
    parts = arrangement.arrange(choice)
    if not parts:
        return choice.fields
    fields = close_choice(choice, parts[0].inner)
    if arrangement.hides and choice.has_reasoning:
        return fields | {name: NULL for name in TOKEN_NAMES if name in fields}
    return fields
