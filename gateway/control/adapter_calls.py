"""One backend is asked to load a LoRA adapter, or to let go of one: look, ask, look again.

What the backend reports at ``/v1/models`` before decides whether there is anything to ask, and what it reports after
whether it has done it; of its words only the reason of a refusal is passed on.  Must not decide what is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.control.probe import MODELS_PATH, Answer, ProbeClient, ProbeFailed
from gateway.control.watch import MODELS_BYTES
from gateway.core.routing.adapters import (
    KEY_REFUSED,
    NOT_REPORTED,
    STILL_REPORTED,
    Adapter,
    AdapterResult,
    AdapterTold,
    find_card,
    root_of,
    verdict,
)
from gateway.core.routing.inventory import InventoryUnreadable, parse_models
from gateway.core.routing.snapshot import ModelCard
from gateway.settings import Backend

LOAD_PATH: Final = "/v1/load_lora_adapter"
UNLOAD_PATH: Final = "/v1/unload_lora_adapter"

LOAD_S: Final = 60.0
"""For an adapter to be read, from a slow disk or a share, while the engine may be busy."""

ASK_S: Final = 10.0
"""For everything else: it is the engine's server alone that answers."""

_ANSWER_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterCall:
    """What one backend is to do: have ``adapter`` loaded, or not; ``reload``: read its files anew if it has it."""

    pool: str
    adapter: Adapter
    backend: Backend
    load: bool
    reload: bool = False


class _Refused(Exception):
    """A step came to nothing, and this is told."""

    def __init__(self, result: AdapterResult, detail: str) -> None:
        super().__init__(detail)
        self.result = result
        self.detail = detail


async def carry_out(
    call: AdapterCall, *, environ: Mapping[str, str]
) -> tuple[AdapterTold, tuple[ModelCard, ...] | None]:
    """Ask the backend; returns what it came to, and what the backend reports now, None where that is not known."""
    cards: tuple[ModelCard, ...] | None = None
    name = call.adapter.name
    async with ProbeClient(call.backend, environ=environ, timeout_s=ASK_S) as client:
        try:
            cards = await _models(client)
            card = find_card(cards, name)
            result = _nothing_to_do(call, card)
            if result is None:
                result = await _ask(client, call, there=card is not None)
                cards = await _models(client)
                _check_done(call, find_card(cards, name))
        except _Refused as refused:
            return AdapterTold(backend=call.backend.name, result=refused.result, detail=refused.detail), cards
    return AdapterTold(backend=call.backend.name, result=result), cards


def _nothing_to_do(call: AdapterCall, card: ModelCard | None) -> AdapterResult | None:
    if not call.load:
        return AdapterResult.NOT_LOADED if card is None else None
    if card is None or call.reload or root_of(card) != call.adapter.path:
        return None
    return AdapterResult.ALREADY_LOADED


def _check_done(call: AdapterCall, card: ModelCard | None) -> None:
    if (card is not None) != call.load:
        raise _Refused(AdapterResult.REFUSED, NOT_REPORTED if call.load else STILL_REPORTED)


async def _ask(client: ProbeClient, call: AdapterCall, *, there: bool) -> AdapterResult:
    order: dict[str, Any] = {"lora_name": call.adapter.name}
    if call.load:
        order["lora_path"] = call.adapter.path
        if there:
            order["load_inplace"] = True
    path, limit_s = (LOAD_PATH, LOAD_S) if call.load else (UNLOAD_PATH, ASK_S)
    try:
        answer = await client.post(path, msgspec.json.encode(order), max_bytes=_ANSWER_BYTES, timeout_s=limit_s)
    except ProbeFailed as failure:
        raise _Refused(AdapterResult.UNREACHABLE, failure.detail) from failure
    if trouble := verdict(answer.status, answer.body, path=call.adapter.path if call.load else ""):
        raise _Refused(AdapterResult.REFUSED, trouble)
    if not call.load:
        return AdapterResult.UNLOADED
    return AdapterResult.RELOADED if there else AdapterResult.LOADED


async def _models(client: ProbeClient) -> tuple[ModelCard, ...]:
    try:
        answer: Answer = await client.get(MODELS_PATH, max_bytes=MODELS_BYTES)
    except ProbeFailed as failure:
        raise _Refused(AdapterResult.UNREACHABLE, failure.detail) from failure
    if answer.status in {401, 403}:
        raise _Refused(AdapterResult.REFUSED, KEY_REFUSED)
    if answer.status != 200:
        raise _Refused(AdapterResult.UNREACHABLE, f"{MODELS_PATH} answered {answer.status}")
    try:
        return parse_models(answer.body)
    except InventoryUnreadable as error:
        raise _Refused(AdapterResult.UNREACHABLE, f"{MODELS_PATH}: {error}") from error
