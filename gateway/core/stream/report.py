"""From what was seen of an answer to its summary: counts, rates, flags, and whether the engine finished it.

Called once per answer, by the tap when a stream is over and for bodies that are no stream.  Decides nothing about
the request: `outcome` does.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.stream.answer import Answer
from gateway.core.stream.chunk import read_metrics, read_usage
from gateway.core.stream.counts import TextLengths, TokenCounts, count_tokens
from gateway.core.stream.rates import decode_window, measure_rates
from gateway.core.stream.summary import Exactness, Flag, RequestShape, StreamSummary
from gateway.core.stream.timeline import Timeline

# Tokens of a choice that have no chunk of their own: an opening marker, a closing marker, an end token.
_CHUNKLESS_TOKENS: Final = 3

# More than this share of the chunks together with the first one, and the decode window leaves out too much of the
# time that they took: the rate is too high by about the same share.
_EARLY_SHARE: Final = 0.05

# Why there is only a total rate.
_INDIVISIBLE: Final = frozenset({Flag.SEVERAL_CHOICES, Flag.TOOL_CALLS, Flag.LOGPROBS, Flag.TOKEN_IDS})


class Defects(Struct, frozen=True, kw_only=True):
    """What of a stream could not be read."""

    bad_events: int = 0
    oversize_events: int = 0
    disabled: bool = False


def report_body(answer: Answer, shape: RequestShape, *, lengths: TextLengths, finished: bool) -> StreamSummary:
    """Return the summary of an answer that came as one body: counts without instants or rates."""
    flags = _shape_flags(answer, shape)
    counts = _count(answer, lengths, current=True, divisible=not flags & _INDIVISIBLE)
    return StreamSummary(
        choices=len(answer.choices),
        prompt_tokens=counts.prompt,
        cached_tokens=counts.cached,
        completion_tokens=counts.completion,
        reasoning_tokens=counts.reasoning,
        content_tokens=counts.content,
        total_exactness=counts.total,
        split_exactness=counts.split,
        reasoning_share=_share(counts),
        finish_reasons=tuple(answer.reasons),
        terminal=finished,
        error=answer.error,
        engine=read_metrics(answer.metrics),
        flags=_in_order(flags | _count_flags(counts)),
    )


def report_stream(answer: Answer, shape: RequestShape, *, defects: Defects, now: float) -> StreamSummary:
    """Return the summary of a stream that ended at ``now``."""
    timeline = answer.timeline
    lengths = TextLengths(
        reasoning=timeline.reasoning_bytes,
        content=timeline.content_bytes,
        tool=timeline.tool_bytes,
        chunks=timeline.chunks,
    )
    flags = _shape_flags(answer, shape)
    # Usage on events of one choice of several tells of that choice only.
    current = answer.usage_after_chunks == timeline.chunks and (
        answer.usage_is_whole or Flag.SEVERAL_CHOICES not in flags
    )
    counts = _count(answer, lengths, current=current, divisible=not flags & _INDIVISIBLE)
    choices = max(len(answer.choices), 1)
    metrics = read_metrics(answer.metrics)
    acceptance = metrics.mean_acceptance_length if metrics is not None else None
    rates = measure_rates(timeline, counts, choices=choices, acceptance=acceptance)
    window = decode_window(timeline)
    flags |= _count_flags(counts) | _defect_flags(defects) | _time_flags(timeline)
    if window is not None and not window.marked:
        flags.add(Flag.NO_FINISH_WINDOW)
    if _sent_tokens(counts) > lengths.chunks + _CHUNKLESS_TOKENS * choices:
        flags.add(Flag.SEVERAL_TOKENS_PER_CHUNK)
    return StreamSummary(
        first_event=timeline.first_event,
        first_token=timeline.first_token,
        first_visible=timeline.first_visible,
        last_token=timeline.last_token,
        window_start=window.start if window is not None else None,
        window_end=window.end if window is not None else None,
        silence_s=now - timeline.last_event if timeline.last_event is not None else None,
        events=timeline.events,
        chunks=timeline.chunks,
        choices=len(answer.choices),
        bad_events=defects.bad_events,
        oversize_events=defects.oversize_events,
        prompt_tokens=counts.prompt,
        cached_tokens=counts.cached,
        completion_tokens=counts.completion,
        reasoning_tokens=counts.reasoning,
        content_tokens=counts.content,
        total_exactness=counts.total,
        split_exactness=counts.split,
        decode_tps=rates.decode_tps,
        reasoning_tps=rates.reasoning_tps,
        visible_tps=rates.visible_tps,
        effective_visible_tps=rates.effective_visible_tps,
        step_time_s=rates.step_time_s,
        reasoning_share=_share(counts),
        gap_p50_s=timeline.gaps.quantile(0.5),
        gap_p99_s=timeline.gaps.quantile(0.99),
        gap_max_s=timeline.gaps.longest_s if timeline.gaps.count else None,
        finish_reasons=tuple(answer.reasons),
        done_marker=answer.done,
        terminal=answer.is_terminal(shape.n),
        error=answer.error,
        engine=metrics,
        flags=_in_order(flags),
    )


def _count(answer: Answer, lengths: TextLengths, *, current: bool, divisible: bool) -> TokenCounts:
    usage = read_usage(answer.usage)
    first = read_usage(answer.first_usage)
    if first is not None and (usage is None or usage.prompt is None):
        # Messages may tell the prompt's tokens at the start only; what it says of the answer there is not its length.
        completion, reasoning = (usage.completion, usage.reasoning) if usage is not None else (None, None)
        usage = replace(first, completion=completion, reasoning=reasoning)
    return count_tokens(usage, lengths, current=current, divisible=divisible)


def _share(counts: TokenCounts) -> float | None:
    return counts.reasoning / counts.completion if counts.completion and counts.reasoning is not None else None


def _sent_tokens(counts: TokenCounts) -> int:
    """Return how many tokens must have been in the chunks; 0 where that is not known exactly."""
    if counts.total is not Exactness.EXACT or counts.completion is None:
        return 0
    return counts.completion - (counts.reasoning or 0 if counts.reasoning_hidden else 0)


def _shape_flags(answer: Answer, shape: RequestShape) -> set[Flag]:
    flags: set[Flag] = set()
    if shape.n > 1 or len(answer.choices) > 1:
        flags.add(Flag.SEVERAL_CHOICES)
    if answer.tool_seen:
        flags.add(Flag.TOOL_CALLS)
    if shape.logprobs:
        flags.add(Flag.LOGPROBS)
    if shape.token_ids:
        flags.add(Flag.TOKEN_IDS)
    if shape.structured:
        flags.add(Flag.STRUCTURED)
    if shape.continuous_usage:
        flags.add(Flag.CONTINUOUS_USAGE)
    return flags


def _count_flags(counts: TokenCounts) -> set[Flag]:
    flags: set[Flag] = set()
    if counts.total is Exactness.ESTIMATED:
        flags.add(Flag.ESTIMATED_TOTAL)
    if counts.split is Exactness.ESTIMATED:
        flags.add(Flag.ESTIMATED_SPLIT)
    if counts.reasoning_hidden:
        flags.add(Flag.REASONING_HIDDEN)
    return flags


def _defect_flags(defects: Defects) -> set[Flag]:
    flags: set[Flag] = set()
    if defects.bad_events:
        flags.add(Flag.BAD_EVENTS)
    if defects.oversize_events:
        flags.add(Flag.OVERSIZE_EVENTS)
    if defects.disabled:
        flags.add(Flag.TAP_DISABLED)
    return flags


def _time_flags(timeline: Timeline) -> set[Flag]:
    early = timeline.early_chunks > _EARLY_SHARE * max(0, timeline.chunks - 1)
    return {Flag.BURST_START} if early else set()


def _in_order(flags: set[Flag]) -> tuple[Flag, ...]:
    return tuple(flag for flag in Flag if flag in flags) if flags else ()
