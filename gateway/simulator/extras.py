"""What an answer carries only when it was asked for: token ids, logprobs, per-request metrics.

Pure.  The simulator has no vocabulary and no probabilities: ids and logprobs are made up from a token's text, so that
they are stable and of the right shape, and mean nothing.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.simulator.shapes import quote


def token_id(text: str) -> int:
    """Return a stable made-up id for a token's text (the simulator has no vocabulary)."""
    return 10 + zlib.crc32(text.encode()) % 150_000


def ids_json(ids: Iterable[int]) -> bytes:
    """Return token ids as a JSON array."""
    return b"[" + b",".join(b"%d" % one for one in ids) + b"]"


def logprob_of(text: str, *, rank: int) -> float:
    """Return a made-up log probability: below 0, lower for each ``rank`` (0 is the chosen token)."""
    return -(zlib.crc32(text.encode()) % 1000) / 2000 - 2.0 * rank - 0.001


def _alternatives(text: str, top: int) -> list[str]:
    return [text, *(f"{text}{rank}" for rank in range(1, top))][:top]


def chat_logprobs(texts: Iterable[str], *, top: int) -> bytes:
    """Return the logprobs object of chat for these tokens with ``top`` alternatives each."""
    content = []
    for text in texts:
        entry = _chat_logprob(text, rank=0)
        tops = [_chat_logprob(other, rank=rank) for rank, other in enumerate(_alternatives(text, top))]
        content.append(entry | {"top_logprobs": tops})
    return quote({"content": content})


def _chat_logprob(text: str, *, rank: int) -> dict[str, object]:
    return {"token": text, "logprob": logprob_of(text, rank=rank), "bytes": list(text.encode())}


def response_logprobs(texts: Iterable[str], *, top: int) -> list[dict[str, Any]]:
    """Return the logprobs that the Responses API lists in a text part."""
    entries = []
    for text in texts:
        tops = [_response_logprob(other, rank=rank) for rank, other in enumerate(_alternatives(text, top))]
        entries.append(_response_logprob(text, rank=0) | {"top_logprobs": tops})
    return entries


def _response_logprob(text: str, *, rank: int) -> dict[str, Any]:
    return {"token": text, "bytes": list(text.encode()), "logprob": logprob_of(text, rank=rank)}


def brief_logprob(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of :func:`response_logprobs` as an event has it: without the bytes."""
    tops = [{"token": top["token"], "logprob": top["logprob"]} for top in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": tops}


def completions_logprobs(texts: Sequence[str], *, offset: int, top: int) -> bytes:
    """Return the logprobs object of completions; ``offset`` is how many characters came before."""
    offsets = [offset + sum(len(text) for text in texts[:index]) for index in range(len(texts))]
    tops = [
        {other: logprob_of(other, rank=rank) for rank, other in enumerate(_alternatives(text, top))} for text in texts
    ]
    return quote(
        {
            "text_offset": offsets,
            "token_logprobs": [logprob_of(text, rank=0) for text in texts],
            "tokens": list(texts),
            "top_logprobs": tops,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What per-request metrics are made from: vLLM counts ``first_token_s`` from scheduling."""

    first_token_s: float
    generation_s: float
    queue_s: float
    tokens: int

    def told(self) -> dict[str, object]:
        """Return mean_itl = generation / (tokens - 1); tokens_per_second = tokens / (first token + generation)."""
        itl_s = self.generation_s / (self.tokens - 1) if self.tokens > 1 else 0.0
        span_s = self.first_token_s + self.generation_s
        rate = self.tokens / span_s if span_s > 0 and math.isfinite(span_s) else 0.0
        return {
            "time_to_first_token_ms": self.first_token_s * 1000,
            "generation_time_ms": self.generation_s * 1000,
            "queue_time_ms": self.queue_s * 1000,
            "mean_itl_ms": itl_s * 1000,
            "tokens_per_second": rate,
        }


_NO_TIMES: Final = Times(first_token_s=0.0, generation_s=0.0, queue_s=0.0, tokens=0)


def metrics_json(times: Times | None, *, drafting: Mapping[str, object] | None, whole: bool) -> bytes:
    """Return the per-request ``metrics``; a ``whole`` body has null for what is not told, a stream nothing."""
    values = times.told() if times is not None else dict.fromkeys(_NO_TIMES.told()) if whole else {}
    if drafting is not None:
        told = {name: value for name, value in drafting.items() if whole or value is not None}
        return quote(values | {"speculative_decoding": told})
    return quote(values | {"speculative_decoding": None} if whole else values)


def drafting(accepted: Sequence[int], *, draft_tokens: int, detailed: bool) -> dict[str, object]:
    """Return what vLLM tells of one sequence's drafts: ``accepted`` of ``draft_tokens`` in each step that had any.

    mean_acceptance_length = 1 + accepted / steps; draft_acceptance_rate = accepted / drafted.
    """
    histogram = [0] * (draft_tokens + 1)
    for count in accepted:
        histogram[count] += 1
    steps, kept = len(accepted), sum(accepted)
    drafted = steps * draft_tokens
    is_detailed = detailed and steps > 0
    return {
        "mean_acceptance_length": 1.0 + kept / steps if steps else 1.0,
        "draft_acceptance_rate": kept / drafted if drafted else 0.0,
        "acceptance_histogram": histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": kept,
        "num_draft_tokens": drafted,
        "num_spec_tokens": draft_tokens,
        "per_step_accepted": list(accepted) if is_detailed else None,
        "per_step_drafted": [draft_tokens] * steps if is_detailed else None,
    }
