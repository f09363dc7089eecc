"""From instants and counts to rates: the definitions that every number shown anywhere goes back to.

Called when a stream is over.  The decode window runs from the first event of a choice, which comes with the first
token even when that is invisible, to the event with the reason to finish; where an endpoint has no such events, or
the stream broke off, from first to last token.  The first token of a choice costs no time inside the window, so it
is in no rate: `decode_tps` is (tokens - choices) / window, which for one choice is 1000 / vLLM's mean_itl_ms.
A channel's rate counts only the tokens whose steps lie in the channel's time.  Pure functions.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.core.stream.counts import TokenCounts
from gateway.core.stream.timeline import Timeline


class Window(Struct, frozen=True, kw_only=True):
    """The decode window; ``marked`` says whether events of the engine mark both its ends.

    ``lead_s`` lies before its first token-bearing chunk, ``trail_s`` after its last one.
    """

    start: float
    end: float
    marked: bool
    lead_s: float
    trail_s: float


class Rates(Struct, frozen=True, kw_only=True):
    """Rates of one stream, None where there is nothing to divide by.

    ``decode_tps``: tokens per second over the window.  ``reasoning_tps``, ``visible_tps``: a channel's tokens by the
    sum of the gaps that end in one of its chunks.  ``effective_visible_tps``: content tokens by the whole window,
    what a person feels when reasoning is hidden.  ``step_time_s``: seconds between two steps of the engine, the
    window by (tokens - 1) / mean acceptance length; without speculative decoding 1 / decode_tps.
    """

    decode_tps: float | None = None
    reasoning_tps: float | None = None
    visible_tps: float | None = None
    effective_visible_tps: float | None = None
    step_time_s: float | None = None


def decode_window(timeline: Timeline) -> Window | None:
    """Return the decode window of a stream; None when no token came."""
    if timeline.first_token is None or timeline.last_token is None:
        return None
    start = timeline.first_token if timeline.start is None else timeline.start
    end = timeline.last_token if timeline.finish is None else timeline.finish
    return Window(
        start=start,
        end=end,
        marked=timeline.start is not None and timeline.finish is not None,
        lead_s=timeline.first_token - start,
        trail_s=end - timeline.last_token,
    )


def measure_rates(timeline: Timeline, counts: TokenCounts, *, choices: int, acceptance: float | None) -> Rates:
    """Return the rates of a stream of ``choices`` choices; ``acceptance`` is the mean acceptance length, if known."""
    window = decode_window(timeline)
    completion = counts.completion
    if window is None or completion is None or window.end <= window.start or completion <= choices:
        return Rates()
    window_s = window.end - window.start
    decode_tps = (completion - choices) / window_s
    step_time_s = (acceptance or 1.0) / decode_tps if choices == 1 else None
    if counts.reasoning is None or counts.content is None:
        return Rates(decode_tps=decode_tps, step_time_s=step_time_s)
    reasoning, content = _timed_tokens(
        window,
        1 / decode_tps,
        reasoning=counts.reasoning,
        content=counts.content,
        first_is_reasoning=timeline.first_is_reasoning,
    )
    content_s = timeline.content_s
    if counts.reasoning_hidden:
        # The gap before the first visible chunk is the reasoning's, not the answer's.
        content, content_s = content - 1, content_s - timeline.visible_gap_s
    return Rates(
        decode_tps=decode_tps,
        step_time_s=step_time_s,
        reasoning_tps=_rate(reasoning, timeline.reasoning_s),
        visible_tps=_rate(content, content_s),
        effective_visible_tps=counts.content / window_s if timeline.first_visible is not None else None,
    )


def _timed_tokens(
    window: Window, token_s: float, *, reasoning: int, content: int, first_is_reasoning: bool
) -> tuple[int, int]:
    """Return how many reasoning and content tokens have their steps in their channel's time.

    The first token never has.  It came with the first chunk when that followed the window's start at once; if not, it
    was an unseen marker, and those are counted among content.  An end token without text has its step after the last
    chunk.  Half of a token's time is what tells "at once" from a step.
    """
    seen_at_once = window.lead_s < token_s / 2
    if seen_at_once and first_is_reasoning:
        reasoning -= 1
    else:
        content -= 1
    if window.trail_s >= token_s / 2:
        content -= 1
    return reasoning, content


def _rate(tokens: int, time_s: float) -> float | None:
    return tokens / time_s if tokens > 0 and time_s > 0 else None
