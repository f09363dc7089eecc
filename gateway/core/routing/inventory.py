"""Which models a backend reports, and the union over backends that clients see.

Cards are the backends' own JSON objects, passed on as they are.  vLLM stamps each answer anew (``created``, the ids of
``permission``), so two cards are compared without these, and an unchanged card keeps its old text: otherwise every
look at a backend would make a new snapshot.  Must not decide which backend serves.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway.core.routing.adapters import is_own_model
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import Alias, ModelCard, Snapshot

MAX_CARDS: Final = 1000
"""Models of one backend that are taken in; LoRA adapters count as models."""

MAX_ID_CHARS: Final = 256
MAX_UNION_BYTES: Final = 4 * 1024 * 1024
"""Text of all cards that clients see together; it travels in every snapshot."""

_STAMPS: Final = ("created", "permission")


class _List(Struct):
    data: list[Raw]


_lists: Final = msgspec.json.Decoder(_List)


class InventoryUnreadable(ValueError):
    """The answer is no list of models; the message says what is wrong, without quoting it."""


def parse_models(body: bytes) -> tuple[ModelCard, ...]:
    """The cards in an answer of ``GET /v1/models``, in its order, each id once.

    Raises InventoryUnreadable for anything but a list of objects with ids.
    """
    try:
        entries = _lists.decode(body).data
        cards = [ModelCard(id=_id_of(entry), raw=bytes(entry)) for entry in entries[: MAX_CARDS + 1]]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InventoryUnreadable("not a list of models") from error
    if len(cards) > MAX_CARDS:
        raise InventoryUnreadable(f"more than {MAX_CARDS} models")
    if not all(0 < len(card.id) <= MAX_ID_CHARS and card.id.isprintable() for card in cards):
        raise InventoryUnreadable("a model without an id that can be used")
    return tuple({card.id: card for card in reversed(cards)}.values())[::-1]


def renewed(old: Iterable[ModelCard], new: Iterable[ModelCard]) -> tuple[ModelCard, ...]:
    """``new``, with the old text of each card that says the same as before."""
    known = {card.id: card for card in old}
    return tuple(
        known[card.id] if card.id in known and _meaning(known[card.id]) == _meaning(card) else card for card in new
    )


def union(
    inventories: Iterable[tuple[str, Iterable[ModelCard]]], *, named: Mapping[str, Container[str]]
) -> tuple[ModelCard, ...]:
    """Cards of all backends, given as (pool, cards) in the order of the configuration; of equal ids the first.

    ``named`` has the models of each pool that restricts them: other models of its backends are not served, so not
    shown.  What goes beyond :data:`MAX_UNION_BYTES` is left out.
    """
    cards: dict[str, ModelCard] = {}
    size_bytes = 0
    for pool, inventory in inventories:
        for card in inventory:
            if card.id in cards or (pool in named and card.id not in named[pool]):
                continue
            size_bytes += len(card.raw)
            if size_bytes > MAX_UNION_BYTES:
                return tuple(cards.values())
            cards[card.id] = card
    return tuple(cards.values())


def without(cards: Iterable[ModelCard], unwanted: Container[str]) -> tuple[ModelCard, ...]:
    """``cards`` without those of LoRA adapters that no operator wants to be used; a model of the name stays."""
    return tuple(card for card in cards if card.id not in unwanted or is_own_model(card))


def with_aliases(cards: tuple[ModelCard, ...], aliases: Iterable[Alias]) -> tuple[ModelCard, ...]:
    """``cards``, and one more for each alias of one of them: that model's own, under the alias' name.

    An alias of a model that is not shown is not shown either.  One that is also the name of a model stands for the
    alias, as it does in requests.
    """
    known = {card.id: card for card in cards}
    shown = dict(known)
    for alias in aliases:
        card = known.get(alias.model)
        if card is not None:
            content = {**msgspec.json.decode(card.raw, type=dict[str, Raw]), "id": alias.name}
            shown[alias.name] = ModelCard(id=alias.name, raw=msgspec.json.encode(content))
    return tuple(shown.values())


def unreported(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """By pool, the models that it names and none of its backends reports; () where each is reported by one.

    Such a model is refused with 503 for ever, most likely since its name is wrong.  A pool is left out as long as that
    cannot be told: none of its backends serves, one has not been looked at, or one that serves does not say its models
    and so may have any.
    """
    found = {}
    for pool in snapshot.pools:
        members = [backend for backend in snapshot.backends if backend.pool == pool.name]
        serving = [backend for backend in members if backend.state is BackendState.SERVING]
        looked_at = all(backend.state is not BackendState.UNKNOWN for backend in members)
        if serving and looked_at and all(backend.models for backend in serving):
            reported = {model for backend in members for model in backend.models}
            found[pool.name] = tuple(model for model in pool.models if model not in reported)
    return found


def _id_of(entry: Raw) -> str:
    """The id in a card, "" where it has none; the whole card is read, since it will be sent on and compared."""
    content = msgspec.json.decode(entry)
    found = content.get("id", "") if isinstance(content, dict) else ""
    return found if isinstance(found, str) else ""


def _meaning(card: ModelCard) -> Mapping[str, Any]:
    content: dict[str, Any] = msgspec.json.decode(card.raw)
    return {key: value for key, value in content.items() if key not in _STAMPS}
