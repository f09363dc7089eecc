"""One backend is asked to load a LoRA adapter, or to let go of one: look, ask, look again.

An adapter that is to be read anew is unloaded and loaded, never loaded in place: after ``load_inplace`` vLLM 0.32 reads
the files again in every step that the adapter is used in, and answers that are open change their weights.  What the
backend reports at ``/v1/models`` before decides whether there is anything to ask, and what it reports after
whether it has done it; of its words only the reason of a refusal is passed on.  Must not decide what is wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.control.probe import MODELS_PATH, Answer, ProbeClient, ProbeFailed
from gateway.control.watch import MODELS_BYTES
from gateway.core.routing.adapters import (
    KEY_REFUSED,
    NOT_REPORTED,
    OWN_MODEL,
    STILL_REPORTED,
    Adapter,
    AdapterResult,
    AdapterTold,
    find_card,
    is_own_model,
    root_of,
    verdict,
)
from gateway.core.routing.inventory import InventoryUnreadable, parse_models, without
from gateway.core.routing.snapshot import ModelCard
from gateway.settings import Backend

LOAD_PATH: Final = "/v1/load_lora_adapter"
UNLOAD_PATH: Final = "/v1/unload_lora_adapter"

LOAD_S: Final = 60.0
"""For an adapter to be read, from a slow disk or a share, while the engine may be busy."""

ASK_S: Final = 10.0
"""For everything else: it is the engine's server alone that answers."""

WITHDRAW_S: Final = 0.2
"""For workers to hear that a backend has an adapter no more, before that is so."""

_ANSWER_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterCall:
    """What one backend is to do: have ``adapter`` loaded, or not; ``reload``: read its files anew if it has it.

    ``replaces``: it is known to have one of that name that has to go first.
    """

    pool: str
    adapter: Adapter
    backend: Backend
    load: bool
    reload: bool = False
    replaces: bool = False


class _Refused(Exception):
    """A step came to nothing, and this is told."""

    def __init__(self, result: AdapterResult, detail: str) -> None:
        super().__init__(detail)
        self.result = result
        self.detail = detail


async def carry_out(
    call: AdapterCall, *, environ: Mapping[str, str], withdraw: Callable[[tuple[ModelCard, ...]], None]
) -> tuple[AdapterTold, tuple[ModelCard, ...] | None]:
    """Ask the backend; returns what it came to, and what the backend reports now, None where that is not known.

    ``withdraw`` is called with what is left before the adapter is unloaded, so that no request is sent for it.
    """
    cards: tuple[ModelCard, ...] | None = None
    name = call.adapter.name
    async with ProbeClient(call.backend, environ=environ, timeout_s=ASK_S) as client:
        try:
            cards = await _models(client)
            card = find_card(cards, name)
            if card is not None and is_own_model(card):
                return _namesake(call), cards
            result = _nothing_to_do(call, card)
            if result is None:
                if card is not None:
                    withdraw(without(cards, {name}))
                    await asyncio.sleep(WITHDRAW_S)
                result = await _ask(client, call, there=card is not None)
                cards = await _models(client)
                _check_done(call, find_card(cards, name))
        except _Refused as refused:
            if cards is None:
                return AdapterTold(backend=call.backend.name, result=refused.result, detail=refused.detail), None
            # It was asked for something, and may have done a part of it; or all, when an earlier call was late.
            cards = await _models_if_told(client)
            result = None if cards is None else _nothing_to_do(call, find_card(cards, name))
            if result is None:
                return AdapterTold(backend=call.backend.name, result=refused.result, detail=refused.detail), cards
    return AdapterTold(backend=call.backend.name, result=result), cards


def _namesake(call: AdapterCall) -> AdapterTold:
    """The backend has a model of the adapter's name, which is left alone."""
    if call.load:
        return AdapterTold(backend=call.backend.name, result=AdapterResult.REFUSED, detail=OWN_MODEL)
    return AdapterTold(backend=call.backend.name, result=AdapterResult.NOT_LOADED)


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
    name, path = call.adapter.name, call.adapter.path
    if there:
        await _post(client, UNLOAD_PATH, {"lora_name": name}, timeout_s=ASK_S)
    if not call.load:
        return AdapterResult.UNLOADED
    await _post(client, LOAD_PATH, {"lora_name": name, "lora_path": path}, timeout_s=LOAD_S)
    return AdapterResult.RELOADED if there else AdapterResult.LOADED


async def _post(client: ProbeClient, path: str, order: Mapping[str, str], *, timeout_s: float) -> None:
    try:
        answer = await client.post(path, msgspec.json.encode(order), max_bytes=_ANSWER_BYTES, timeout_s=timeout_s)
    except ProbeFailed as failure:
        raise _Refused(AdapterResult.UNREACHABLE, failure.detail) from failure
    if trouble := verdict(answer.status, answer.body, path=order.get("lora_path", "")):
        raise _Refused(AdapterResult.REFUSED, trouble)


async def _models_if_told(client: ProbeClient) -> tuple[ModelCard, ...] | None:
    try:
        return await _models(client)
    except _Refused:
        return None


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
