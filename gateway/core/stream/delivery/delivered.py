"""The edit that delivers reasoning, and which one a request gets.

Station relay, chosen once per request; ``pass`` never comes here.  Delivery goes first, over every event with data; the
edit that the request has otherwise (usage taken out, numbers added) then works on what it made, so both know nothing
of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, assert_never

from gateway.core.stream.delivery.arrange import Arrangement, FieldNames, Hidden, Inlined, Named, TakeReasoning
from gateway.core.stream.delivery.chat import ChatDelivery
from gateway.core.stream.delivery.messages import MessagesDelivery
from gateway.core.stream.delivery.mode import Delivery, ThinkTags
from gateway.core.stream.delivery.responses import ResponsesDelivery
from gateway.core.stream.delivery.side import SideEvents
from gateway.core.stream.delivery.whole import deliver_choices, deliver_hidden
from gateway.core.stream.edit import Edit, split_events
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.summary import Dialect

DATA_NEEDLE: Final = b"data"
"""In every event but comments and blank lines, which no mode means."""


class EventDelivery(Protocol):
    """One mode over one stream."""

    @property
    def held(self) -> bytes:
        """Whole events with text that waits; as it would be told if nothing followed."""
        ...

    def at_break(self) -> bytes:
        """The stream has broken off: what is held, and the end of what this edit has begun."""
        ...

    def begin(self, first: bytes) -> None:
        """See the first whole events of the stream."""
        ...

    def event(self, event: bytes) -> bytes:
        """One whole event in, none, one or several out."""
        ...


class Delivered:
    """An `Edit` of every event: ``delivery``, then the edit ``after`` it."""

    needles: tuple[bytes, ...] = (DATA_NEEDLE,)

    def __init__(self, delivery: EventDelivery, after: Edit, *, side: SideEvents | None = None) -> None:
        self._delivery = delivery
        self._after = after
        # Events made here may be spaced otherwise than the backend's: all forms are looked for.
        self._needles = after.needles
        self._side = side

    @property
    def held(self) -> bytes:
        """What either holds."""
        return self._after.held + self._delivery.held

    def at_break(self) -> bytes:
        """What either has."""
        return self._after.at_break() + self._delivery.at_break()

    def begin(self, first: bytes) -> None:
        """All of them see the stream's first events as they came."""
        self._delivery.begin(first)
        self._after.begin(first)
        if self._side is not None:
            self._side.begin(first)

    def apply(self, events: bytes, report: Callable[[], PaceReport]) -> bytes:
        """Whole events in, whole events out."""
        if events.find(b"\n\n") == len(events) - 2 and b"\r" not in events:
            delivered = self._delivery.event(events)  # the usual read: one event
        else:
            delivered = b"".join(map(self._delivery.event, split_events(events)))
        if self._after.held:
            return self._after.apply(delivered, report)
        for needle in self._needles:
            if needle in delivered:
                return self._after.apply(delivered, report)
        return delivered


def deliver_stream(
    mode: Delivery,
    dialect: Dialect,
    *,
    tags: ThinkTags | None,
    after: Edit,
    take: TakeReasoning,
    side: SideEvents | None,
) -> Edit:
    """The edit of a stream; ``take`` gets reasoning that the client does not.

    ``mode`` is one that is possible here, and not ``pass``.
    """
    match dialect:
        case Dialect.RESPONSES:
            return Delivered(ResponsesDelivery(take), after, side=side)
        case Dialect.MESSAGES:
            return Delivered(MessagesDelivery(take), after, side=side)
        case Dialect.CHAT | Dialect.COMPLETIONS:
            key = "delta" if dialect is Dialect.CHAT else "text"
            return Delivered(ChatDelivery(_arrangement(mode, take), key=key, tags=tags), after, side=side)
        case Dialect.TRANSCRIPTION | Dialect.OPAQUE:
            raise ValueError(mode)  # nothing but `pass` is possible there
        case _:
            assert_never(dialect)


def deliver_body(
    body: bytes,
    mode: Delivery,
    dialect: Dialect,
    *,
    tags: ThinkTags | None,
    take: TakeReasoning,
) -> bytes:
    """A whole answer under ``mode``; see `deliver_stream`."""
    if dialect in {Dialect.RESPONSES, Dialect.MESSAGES}:
        return deliver_hidden(body, dialect, take)
    key = "message" if dialect is Dialect.CHAT else "text"
    return deliver_choices(body, _arrangement(mode, take), key=key, tags=tags)


def leave_out(index: int, inside: bytes) -> None:
    """Nobody gets the reasoning."""


def _arrangement(mode: Delivery, take: TakeReasoning) -> Arrangement:
    match mode:
        case Delivery.PASS | Delivery.REASONING:
            return FieldNames("reasoning")
        case Delivery.REASONING_CONTENT:
            return FieldNames("reasoning_content")
        case Delivery.BOTH:
            return FieldNames("reasoning", "reasoning_content")
        case Delivery.DROP | Delivery.SIDE:
            return Hidden(take)
        case Delivery.EVENTS:
            return Named()
        case Delivery.TAGS:
            return Inlined()
        case _:
            assert_never(mode)
