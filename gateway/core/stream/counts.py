"""Token counts of an answer: the engine's own where they can be believed, else estimates that say so.

Called when an answer is over.  The total is exact only when the engine's usage covers everything that came.  Its
reasoning count is cross-checked with the text, since marker-based parsers count nothing when the opening tag stands
in the prompt; where it is absent or implausible the exact total is split by UTF-8 length.  Without usage the total
itself is estimated.  Pure functions; no rates here.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from gateway.core.stream.chunk import Usage
from gateway.core.stream.summary import Exactness

# Without usage: bytes of text to a token.  Tokenisers of current models make 3.5 to 4.5 of English prose, fewer of
# code, numbers and other scripts; an estimate is never more than a display value, so one constant does.
_BYTES_PER_TOKEN: Final = 4.0

# Bytes to a token may differ by this factor between the channels of one answer (numbers against prose, one script
# against another) before the engine's reasoning count is disbelieved.
_DENSITY_FACTOR: Final = 4

# Tokens without text: an opening marker, a closing marker, an end token, and one to spare.
_SILENT_TOKENS: Final = 4


class TextLengths(Struct, frozen=True, kw_only=True):
    """UTF-8 bytes of each channel of an answer, and how many chunks they came in."""

    reasoning: int = 0
    content: int = 0
    tool: int = 0
    chunks: int = 0


class TokenCounts(Struct, frozen=True, kw_only=True):
    """Tokens of an answer; None where not known.  ``content``: all that is not reasoning, markers included."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    content: int | None = None
    total: Exactness = Exactness.UNKNOWN
    split: Exactness = Exactness.UNKNOWN
    reasoning_hidden: bool = False


def count_tokens(usage: Usage | None, lengths: TextLengths, *, current: bool, divisible: bool) -> TokenCounts:
    """Return the counts of an answer.

    ``current``: no text came after ``usage``, and it covers every choice.  ``divisible``: reasoning and content are
    all there is, so that what is not the one is the other; if not, the engine's own reasoning count still stands when
    it is plausible, and nothing is estimated.
    """
    prompt = usage.prompt if usage is not None else None
    cached = usage.cached if usage is not None else None
    completion = usage.completion if usage is not None and current else None
    if completion is None or (completion == 0 and lengths.chunks):
        return _estimate(lengths, prompt=prompt, cached=cached, divisible=divisible)
    reasoning = usage.reasoning if usage is not None else None
    split = Exactness.EXACT
    if reasoning is None and lengths.reasoning == 0:
        # An engine without a reasoning parser, or a dialect that counts no reasoning: there was none to be seen.
        reasoning = 0
    if reasoning is None or not is_plausible(reasoning, completion, lengths=lengths, divisible=divisible):
        reasoning = _share_out(completion, lengths) if divisible else None
        split = Exactness.ESTIMATED if divisible else Exactness.UNKNOWN
    return TokenCounts(
        prompt=prompt,
        cached=cached,
        completion=completion,
        reasoning=reasoning,
        content=completion - reasoning if divisible and reasoning is not None else None,
        total=Exactness.EXACT,
        split=split,
        reasoning_hidden=bool(reasoning) and lengths.reasoning == 0,
    )


def is_plausible(reasoning: int, completion: int, *, lengths: TextLengths, divisible: bool) -> bool:
    """Whether the engine's reasoning count agrees with the text.

    Bytes to a token must not differ by more than a factor of four between reasoning and the rest, give or take four
    tokens that have no text.  Reasoning that was counted but not sent is believed: there is nothing to check it with.
    An answer that is not ``divisible`` has tokens without text in any number (the markup of tool calls), so only an
    impossible count is disbelieved.
    """
    if reasoning > completion:
        return False
    if lengths.reasoning == 0:
        return True
    if reasoning == 0 or not divisible:
        return reasoning > 0
    rest, rest_bytes = completion - reasoning, lengths.content
    if rest_bytes == 0:
        return rest <= _SILENT_TOKENS
    return lengths.reasoning * rest <= _DENSITY_FACTOR * rest_bytes * (
        reasoning + _SILENT_TOKENS
    ) and rest_bytes * reasoning <= _DENSITY_FACTOR * lengths.reasoning * (rest + _SILENT_TOKENS)


def _estimate(lengths: TextLengths, *, prompt: int | None, cached: int | None, divisible: bool) -> TokenCounts:
    size = lengths.reasoning + lengths.content + lengths.tool
    if size == 0:
        return TokenCounts(prompt=prompt, cached=cached)
    # A chunk with text holds a token at least.
    completion = max(round(size / _BYTES_PER_TOKEN), lengths.chunks, 1)
    reasoning = _share_out(completion, lengths) if divisible else None
    return TokenCounts(
        prompt=prompt,
        cached=cached,
        completion=completion,
        reasoning=reasoning,
        content=completion - reasoning if reasoning is not None else None,
        total=Exactness.ESTIMATED,
        split=Exactness.ESTIMATED if divisible else Exactness.UNKNOWN,
    )


def _share_out(completion: int, lengths: TextLengths) -> int:
    size = lengths.reasoning + lengths.content
    return round(completion * lengths.reasoning / size) if size else 0
