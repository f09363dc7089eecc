"""Stations admit and relay: which way of delivery a request gets, and the edits that go with it.

Decided once, when model and shape are known; what the client asks for must be possible, what the settings say is left
out where it is not.  Must not be asked for anything while a stream runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.core.routing.snapshot import Snapshot
from gateway.core.stream.delivery.delivered import deliver_body, deliver_stream, leave_out
from gateway.core.stream.delivery.mode import Delivery, ReasoningPolicy, possible
from gateway.core.stream.edit import Edit
from gateway.core.stream.summary import Dialect
from gateway.errors import BadRequest
from gateway.proxy.visit import Visit

REASONING_HEADER = "X-Gateway-Reasoning"


def asked_delivery(headers: Mapping[str, str]) -> Delivery | None:
    """The mode that the client names, or None.  Raises BadRequest for a word that is none."""
    word = headers.get(REASONING_HEADER)
    if word is None:
        return None
    try:
        return Delivery(word)
    except ValueError:
        raise BadRequest(f"{REASONING_HEADER} is {_listed(Delivery)}", param=REASONING_HEADER) from None


def settle_delivery(visit: Visit, dialect: Dialect, *, key_default: Delivery | None = None) -> None:
    """Fix the mode of a request whose pool and shape are known: its own, else its key's, else its model's.

    A default that is not possible here gives way to the next one.  Raises BadRequest when the client asks for what is
    not possible.
    """
    policy = reasoning_policy(visit.snapshot, visit.pool, visit.model)
    visit.tags = policy.tags
    if policy.tags is None and visit.asked_delivery is None and key_default is None and policy.mode is None:
        return
    stream = visit.shape is not None and visit.shape.stream
    modes = possible(dialect, stream=stream, tagged=policy.tags is not None)
    asked = visit.asked_delivery
    if asked is not None and asked not in modes:
        where = "in a stream" if stream else "for an answer in one piece"
        raise BadRequest(
            f"{REASONING_HEADER}: {asked} is not possible here {where}; possible: {_listed(modes)}",
            param=REASONING_HEADER,
        )
    visit.delivery = next((mode for mode in (asked, key_default, policy.default) if mode in modes), Delivery.PASS)


def reasoning_policy(snapshot: Snapshot, pool: str, model: str) -> ReasoningPolicy:
    """What the settings say of reasoning for ``model`` in ``pool``."""
    for view in snapshot.pools:
        if view.name == pool:
            return view.reasoning_of(model)
    return ReasoningPolicy()


def stream_edit(visit: Visit, dialect: Dialect, *, after: Edit) -> Edit:
    """The edit of a stream: ``after`` alone where reasoning passes, else delivery and then ``after``."""
    if visit.delivery is Delivery.PASS:
        return after
    side = visit.side
    return deliver_stream(
        visit.delivery,
        dialect,
        tags=visit.tags,
        after=after,
        take=leave_out if side is None else side.take,
        side=None if side is None else side.events,
    )


def body_edit(
    visit: Visit, dialect: Dialect, *, after: Callable[[bytes], bytes] | None
) -> Callable[[bytes], bytes] | None:
    """The edit of a whole body: ``after`` (None: none) alone where reasoning passes, else delivery as well.

    ``after`` sees what the engine sent, for it measures; delivery works on what it made.
    """
    if visit.delivery is Delivery.PASS:
        return after
    side = visit.side

    def deliver(body: bytes) -> bytes:
        if side is not None:
            side.events.begin(body)
        take = leave_out if side is None else side.take
        return deliver_body(body if after is None else after(body), visit.delivery, dialect, tags=visit.tags, take=take)

    return deliver


def _listed(modes: type[Delivery] | tuple[Delivery, ...]) -> str:
    *first, last = [mode.value for mode in modes]
    return f"{', '.join(first)} or {last}" if first else last
