"""Long prompts (P10): what 1 MiB takes longer than direct, and how long it stalls another stream of the same worker.

A stall is seen from outside: a stream beside the prompts steps every millisecond, each event carries the moment in
which the engine wrote it, and the longest that one was under way while a prompt was dealt with is the stall. What
engine and client themselves add is in the figures of `direct`, over which the others are shown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks import vllm_bytes
from benchmarks.figures import percentile
from benchmarks.load import AnswerClient, StreamClient, Tally, chat_request, connect
from benchmarks.measure import without_collections
from benchmarks.relays import Target
from benchmarks.results import PromptRound

PROMPT_BYTES = 1024 * 1024
_TURNS = 1024
_SETTLE_S = 0.5
_PAUSE_S = 0.06
_AFTER_S = 0.006
_GRACE_S = 20.0
_TICK_TOKENS = 20_000
_KEPT_FAILURES = 5


def _text(size_bytes: int, generator: random.Random) -> str:
    """Prose as JSON has it: lines of words, some quotes, now and then a letter that is no ASCII."""
    pieces: list[str] = []
    length = 0
    while length < size_bytes:
        word = generator.choice((*vllm_bytes.WORDS, ' "quoted"', " façade", "\n"))
        pieces.append(word)
        length += len(word.encode())
    return "".join(pieces)


def _shapes() -> dict[str, tuple[str, ...]]:
    generator = random.Random(1)
    return {
        "one text": (_text(PROMPT_BYTES, generator),),
        "1024 turns": tuple(_text(PROMPT_BYTES // _TURNS, generator) for _ in range(_TURNS)),
    }


SHAPES: Mapping[str, tuple[str, ...]] = MappingProxyType(_shapes())
"""The conversations before the question, by name: a long document, and a long talk."""


@dataclass(frozen=True, slots=True)
class PromptLoad:
    """Prompts of one shape, one after the other."""

    shape: str
    history: tuple[str, ...]
    count: int


class _Ticker(StreamClient):
    """Notes how long the first event of every read was under way: of several, the one that waited longest."""

    def _time(self, body: bytes) -> None:
        at = body.find(vllm_bytes.STAMP_MARK)
        if at >= 0 and not self.tally.lenient:
            start = at + len(vllm_bytes.STAMP_MARK)
            stamped = int(body[start : start + vllm_bytes.STAMP_DIGITS])
            self.tally.lag_us.append(vllm_bytes.lag_us(stamped, int(self.now_us)))


async def beside_a_stream(target: Target, load: PromptLoad, *, number: int) -> PromptRound:
    """Send the prompts, and watch the stream beside them."""
    ticks, answers = Tally(lenient=not target.faithful), Tally(lenient=not target.faithful)
    [ticker] = await connect(_Ticker, target.port, count=1, tally=ticks)
    [asker] = await connect(AnswerClient, target.port, count=1, tally=answers)
    request = chat_request(tokens=4, stream=False, history=load.history)
    ticker.send(chat_request(tokens=_TICK_TOKENS, stream=True, pace_ms=1), lambda: None)
    await asyncio.sleep(_SETTLE_S)
    stalls: list[float] = []
    quiet: list[float] = []
    ended = asyncio.Event()
    with without_collections():
        for _ in range(load.count):
            seen = len(ticks.lag_us)
            await asyncio.sleep(_PAUSE_S)
            quiet += ticks.lag_us[seen:]
            seen = len(ticks.lag_us)
            ended.clear()
            asker.send(request, ended.set)
            async with asyncio.timeout(_GRACE_S):
                await ended.wait()
            await asyncio.sleep(_AFTER_S)  # what was held up comes right after
            stalls += [max(ticks.lag_us[seen:])] if len(ticks.lag_us) > seen else []
            if answers.failures or ticks.failures:
                break
    ticker.close()
    asker.close()
    return PromptRound(
        relay=target.name,
        shape=load.shape,
        number=number,
        prompts=answers.answers,
        answer_p50_us=percentile(answers.first_event_us, 0.5),
        answer_p99_us=percentile(answers.first_event_us, 0.99),
        stall_p50_us=percentile(stalls, 0.5),
        stall_worst_us=max(stalls, default=None),
        quiet_p99_us=percentile(quiet, 0.99),
        failures=(answers.failures + ticks.failures)[:_KEPT_FAILURES],
    )
